package loop

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// open gives a service that joins a free position, and starts its workers.
func (w *workers) open(s *service, places []Place) (err error) {
	list := w.services.list
	id := models.ServiceID(len(list))
	if at := slices.Index(list, nil); at >= 0 {
		id = models.ServiceID(at)
	}
	if id >= predictor.MaxServices {
		return fmt.Errorf("there are %d services, including their replacements, which is the limit: remove others first", predictor.MaxServices)
	}
	for _, p := range places {
		if err := w.env.devices[p.Device].noWorkers; err != nil {
			return err
		}
	}
	if err := w.services.furnish(s, id); err != nil {
		return err
	}
	spec := scheduled(id, &s.config)
	spec.Of = "" // until it serves
	if err := w.env.step(overlap.Event{Kind: overlap.Add, Definition: spec}); err != nil {
		return errors.Join(err, w.services.closeInputs(s))
	}
	w.services.reserve(id) // also if it stays free: all tables are of one length
	err = w.env.forget(id, spec.Operators)
	for i := 0; err == nil && i < len(places); i++ {
		if err = w.hire(s, s.replicas[places[i].Device]); err == nil {
			continue
		}
		for _, p := range places[:i] {
			_, rerr := w.env.devices[p.Device].exec.Remove(id)
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		return errors.Join(err, w.env.step(overlap.Event{Kind: overlap.Remove, Service: id}), w.env.drop(id), w.services.closeInputs(s))
	}
	w.services.list[id], w.services.specs[id], w.services.reloaded = s, spec, true
	return nil
}

// spread gives a service workers on the devices that are new to it, and has those go
// that are not among its places any more.
func (w *workers) spread(s *service, places []Place) (err error) {
	for r := range s.each {
		r.leaves = true
	}
	for _, p := range places {
		if r := s.replicas[p.Device]; r != nil {
			r.leaves, p.GiveBack, p.Worker = false, r.place.GiveBack, r.place.Worker
			r.place = p
			continue
		}
		r := &replica{place: p}
		if gone := s.gone[p.Device]; gone != nil {
			w.hireAfter(s, r, gone)
		} else if herr := w.hire(s, r); herr != nil {
			p.GiveBack()
			err = errors.Join(err, herr)
			continue
		}
		s.replicas[p.Device], w.services.reloaded = r, true
	}
	for r := range s.each {
		if r.leaves {
			w.shrinking++
		}
	}
	return err
}

// shrink takes workers away whose services have left their devices, and of which
// another one serves.
func (w *workers) shrink() {
	if w.shrinking == 0 {
		return
	}
	w.shrinking = 0
	for _, s := range w.services.served() {
		stays := slices.ContainsFunc(s.replicas, func(o *replica) bool { return o != nil && o.ready() && !o.leaves })
		for r := range s.each {
			if !r.leaves {
				continue
			}
			if !stays || w.env.devices[r.place.Device].taken || !s.flushed(w.env.now()) {
				w.shrinking++
				continue
			}
			w.withdrawFrom(s, r)
		}
	}
}

// withdrawFrom takes the worker of a service off a device.
func (w *workers) withdrawFrom(s *service, r *replica) {
	id, d := s.entry.ID, w.env.devices[r.place.Device]
	_ = w.env.step(overlap.Event{Kind: overlap.Down, Service: id, Device: d.index})
	s.replicas[d.index] = nil
	s.show()
	w.env.changed()
	gone, err := d.exec.Remove(id)
	if err != nil {
		w.env.log.Error().Err(err).Str("service", s.config.Name).Msg("removing a worker from a device failed")
		return
	}
	if s.gone == nil {
		s.gone = map[int]<-chan struct{}{}
	}
	s.gone[d.index] = gone
	w.env.options.Goroutines.Go(func() {
		<-gone
		r.place.GiveBack()
	})
	w.services.rebind = true
}

// lend has a device run a round that measures, or rounds of queries again. The scheduler, which has
// other devices for the queries that come meanwhile, takes it for one without workers; the only one
// is not asked about.
func (w *workers) lend(d *device, taken bool) {
	d.taken = taken
	for id, s := range w.services.list {
		switch {
		case len(w.env.devices) == 1 || s == nil || s.replicas[d.index] == nil:
		case taken:
			_ = w.env.step(overlap.Event{Kind: overlap.Down, Service: models.ServiceID(id), Device: d.index})
		default:
			w.resume(models.ServiceID(id), d)
		}
	}
}
