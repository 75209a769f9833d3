package loop

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/rs/zerolog"
)

// workers is the workers of the services: what happens to them, what they have learned of their
// models, and which device has one.
type workers struct {
	env       *env
	services  *services
	loading   loading
	late      []lateEvent // came while a round of their service runs
	shrinking int         // workers that go as soon as another one serves
}

// lateEvent is an event that could not be taken in yet.
type lateEvent struct {
	device *device
	event  *executor.Event
}

// loseWorkers gives up every worker of a device, those too that come later, for a reason
// that is no service's own. With a nil error there may be workers again.
func (w *workers) loseWorkers(d *device, err error) {
	d.noWorkers = err
	for i, s := range w.services.list {
		if s != nil && s.replicas[d.index] != nil && err != nil {
			w.happened(d, &executor.Event{Kind: executor.WorkerFailed, Service: models.ServiceID(i), Err: err})
		}
	}
}

// happened takes in what happened to a worker. The outcome of a span that
// was lost with it may come before or after.
func (w *workers) happened(d *device, e *executor.Event) {
	w.loading.heard(d.index, e, time.Now())
	if s := w.services.list[e.Service]; s != nil && s.state != stateLeaving && s.replicas[d.index] != nil {
		w.fares(s, d, e)
	}
	log := w.env.log
	if d.Name != "" {
		log = log.With().Str("device", d.Name).Logger()
	} else if d.Emulated {
		log = log.With().Str("device", d.Text).Logger()
	}
	logEvent(log, w.services.name(e.Service), e)
}

func (w *workers) fares(s *service, d *device, e *executor.Event) {
	r := s.replicas[d.index]
	switch e.Kind {
	case executor.WorkerStarting:
		if r.started {
			s.line.restarts++
		}
		r.started = true
	case executor.WorkerReady:
		w.up(d, e)
	case executor.WorkerLost:
		w.down(e.Service, d)
	case executor.WorkerFailed:
		w.down(e.Service, d)
		r.fault, r.retryAt = e.Err, 0
		if e.RestartIn > 0 {
			r.retryAt = time.Now().Add(e.RestartIn).UnixNano()
		}
		w.giveUp(s, d)
	case executor.WorkerStopped:
		w.down(e.Service, d)
	}
	if s.state == stateJoining {
		w.heard(s, r, e)
	}
}

// lost is called when a span is lost. That is known before the event that its
// worker is, unless the next worker is ready already.
func (w *workers) lost(id models.ServiceID, d *device) {
	if r := w.services.list[id].replicas[d.index]; r != nil && !r.fresh {
		w.down(id, d)
	}
}

func (w *workers) down(id models.ServiceID, d *device) {
	s := w.services.list[id]
	r := s.replicas[d.index]
	r.fresh, r.ready, r.overrun = false, false, false
	s.show()
	_ = w.env.step(overlap.Event{Kind: overlap.Down, Service: id, Device: d.index})
}

// giveUp expects no worker of a service on a device soon. All else goes on without it.
func (w *workers) giveUp(s *service, d *device) {
	s.replicas[d.index].givenUp = true
	s.show()
	d.kind.learning.GaveUp()
	w.services.rebind = true
}

// errOtherModel is why a worker is not used whose model is not that of the others.
var errOtherModel = errors.New("its model differs from the one that the workers on other devices have loaded: reload, so that all load it again")

func (w *workers) up(d *device, e *executor.Event) {
	member := w.services.list[e.Service]
	s, r := member.entry, member.replicas[d.index]
	w.keepCut(member, r, e.Info)
	if i := member.info; i != nil && s.Ready() && (i.Hash != e.Info.Hash || len(i.Operators) != len(e.Info.Operators)) {
		if i.Hash == e.Info.Hash && i.Cut != nil && r.Worker.Load.Choose != nil && !r.recut {
			w.recut(member, r)
			return
		}
		w.env.log.Error().Err(errOtherModel).Str("service", s.Name).Str("device", d.Name).Msg("the model cannot be served")
		w.refuse(member, d, errOtherModel)
		return
	}
	if fault := e.Info.WarmFault; fault != "" && w.warmed(member) {
		w.refuse(member, d, fmt.Errorf("its model fails on the zeros that it is warmed up with, which the previous one did not: %s", fault))
		return
	}
	if err := s.Loaded(w.infoOf(d, e.Info)); err != nil {
		w.env.log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be served")
		w.refuse(member, d, err)
		return
	}
	if member.family != nil {
		if err := member.family.loaded(member, w.infoOf(d, e.Info)); err != nil {
			w.env.log.Error().Err(err).Str("service", s.Name).Msg("the variant cannot be served")
			w.refuse(member, d, err)
			return
		}
	}
	spec := w.services.specs[e.Service]
	spec.Operators, spec.MaxBatch = len(e.Info.Operators), s.MaxBatch
	spec.Ladder = e.Info.Convolutions && slices.ContainsFunc(w.env.devices, func(d *device) bool { return d.Ladder })
	if !s.Mergeable() {
		spec.MaxBatch = 1
	}
	before := member.info
	switch err := w.load(d, spec, e); {
	case errors.Is(err, overlap.ErrServiceBusy):
		w.late = append(w.late, lateEvent{d, e})
		return
	case err != nil:
		w.env.log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be scheduled")
		w.refuse(member, d, err)
		return
	}
	if member.info != before {
		if err := w.plan(member); err != nil {
			w.refuse(member, d, err)
			return
		}
	}
	r.ready, r.fresh, r.loaded, r.givenUp, r.retryAt, r.fault = true, true, true, false, 0, nil
	if err := w.follow(member); err != nil {
		w.env.log.Error().Err(err).Str("service", s.Name).Msg("the plan cannot be followed")
	}
	member.probation().back(w.env.now())
	d.kind.learning.Cold(e.Service)
	w.resume(e.Service, d)
	member.show()
	w.services.takeOver(member)
	w.services.rebind = true
}

// recut starts a worker again that has cut its model otherwise than those on other
// devices, which measured at the same time what cuts cost.
func (w *workers) recut(s *service, r *replica) {
	gone, err := w.env.devices[r.Device].exec.Remove(s.entry.ID)
	if err != nil {
		w.refuse(s, w.env.devices[r.Device], err)
		return
	}
	r.recut = true
	w.hireAfter(s, r, gone)
}

// warmed reports whether a service joins in the place of one whose model ran when it
// was warmed up.
func (w *workers) warmed(s *service) bool {
	old := w.services.serving(s.config.Name)
	return s.state == stateJoining && old != nil && old.info != nil && old.info.WarmFault == ""
}

// infoOf returns what requests are checked against.
func (w *workers) infoOf(d *device, i *wire.Info) query.Info {
	info := query.Info{
		Inputs:    i.Inputs,
		Outputs:   i.Outputs,
		Operators: len(i.Operators),
		Hash:      i.Hash,
		Platform:  query.OnnxPlatform,
		Device:    d.Text,
		Versions:  map[string]string{"onnxruntime": i.ORTVersion},
	}
	if d.Emulated {
		info.Platform, info.Versions = config.DeviceEmulated, nil
	}
	if i.Cut != nil {
		info.Cut = i.Cut.Reason
	}
	return info
}

// refuse gives up a service whose worker has loaded a model that cannot be
// served.
func (w *workers) refuse(s *service, d *device, err error) {
	r := s.replicas[d.index]
	r.fault, r.retryAt = err, 0
	w.services.withdraw(s, err)
	w.giveUp(s, d)
}

// catchUp takes in the workers that came back with another model while a
// round with a span of the lost one was still running.
func (w *workers) catchUp() {
	late := w.late
	w.late = nil
	for _, l := range late {
		e := l.event
		if state, err := l.device.exec.State(e.Service); err == nil && state.PID == e.PID {
			w.up(l.device, e)
		}
	}
}

// load gives scheduler and predictors what the worker learned of the model. A
// worker that comes back with the same model changes nothing.
func (w *workers) load(d *device, spec models.Service, e *executor.Event) error {
	member := w.services.list[spec.ID]
	if member.info == nil || !reflect.DeepEqual(w.services.specs[spec.ID], spec) || member.info.Hash != e.Info.Hash {
		spec.Pipelines = nil // they are of the model that was
		if err := w.env.step(overlap.Event{Kind: overlap.Load, Definition: spec}); err != nil {
			return err
		}
		if err := w.env.forget(spec.ID, spec.Operators); err != nil {
			return err
		}
		w.services.specs[spec.ID], member.info = spec, e.Info
	}
	if d.kind.profiled[spec.ID] == e.Info.Hash {
		return nil
	}
	d.kind.profiled[spec.ID] = e.Info.Hash
	return w.profile(d.kind, spec, member.replicas[d.index].Share, e.Info)
}

// profile has a kind of device know how long the operators of a model take there, by
// what was stored and by what a worker found as it warmed up.
func (w *workers) profile(k *kind, spec models.Service, share string, i *wire.Info) error {
	k.learning.Changed()
	if w.env.options.Profiles != nil && !k.devices[0].Emulated {
		var p predictor.Snapshot
		if w.env.options.Profiles.Stored(SoloProfiles, k.profileKey(share, i), &p) && k.solo.Restore(spec.ID, p) == nil {
			w.env.log.Debug().Str("service", spec.Name).Int("cells", len(p.Cells)).Msg("stored profile loaded")
		}
	}
	for _, t := range i.Solo {
		if k.slower(spec, t) {
			continue
		}
		if err := k.solo.SetOperators(spec.ID, t.Size, t.SeqLen, t.Nanos); err != nil {
			return err
		}
	}
	return nil
}

// keepCut logs a choice that a worker has made, and has it stored.
func (w *workers) keepCut(member *service, r *replica, info *wire.Info) {
	c := info.Cut
	if c == nil {
		return
	}
	if before := member.info; before != nil && before.Cut != nil && before.Cut.Reason == c.Reason && before.Hash == info.Hash {
		return
	}
	w.env.log.Info().Str("service", member.config.Name).Int("operators", len(info.Operators)).Str("why", c.Reason).Msg("model cut")
	if c.Measured() && w.env.options.Profiles != nil {
		w.env.options.Profiles.ChoseCut(member.config, r.Place, c)
	}
}

// logEvent writes what happened to the worker of a service.
func logEvent(log zerolog.Logger, service string, e *executor.Event) {
	log = log.With().Str("service", service).Logger()
	switch e.Kind {
	case executor.WorkerStarting:
		log.Info().Int("pid", e.PID).Msg("worker starting")
	case executor.WorkerProgress:
		log.Debug().Str("phase", e.Phase).Int64("done", e.Done).Int64("total", e.Total).Msg("worker loading")
	case executor.WorkerReady:
		if e.PID == 0 {
			log.Info().Int("operators", len(e.Info.Operators)).Msg("model emulated")
			return
		}
		log.Info().Int("pid", e.PID).Int("operators", len(e.Info.Operators)).Bool("cached", e.Info.CacheHit).Dur("took", e.Took.Round(time.Millisecond)).Msg("worker ready")
	case executor.WorkerOutput:
		log.Warn().Str("line", e.Line).Msg("worker output")
	case executor.WorkerLost:
		log.Error().Err(e.Err).Int("pid", e.PID).Int("batches", len(e.Batches)).Dur("restart_in", e.RestartIn.Round(time.Millisecond)).Msg("worker exited")
	case executor.WorkerFailed:
		if e.RestartIn > 0 {
			log = log.With().Dur("retry_in", e.RestartIn).Logger()
		}
		log.Error().Err(e.Err).Msg("service failed permanently: fix the cause, then run: overlapd restart NAME")
	case executor.WorkerStopped:
		if e.PID != 0 {
			log.Info().Int("pid", e.PID).Msg("worker stopped")
		}
	}
}

// loadTries is how often the worker of a service that joins may be lost before
// it is given up for reasons that another try may not have. What the model is
// at fault for is given up at once.
const loadTries = 3

// settled reports whether every worker on devices of a kind has loaded its model or was
// given up.
func (w *workers) settled(on *kind) bool {
	return !slices.ContainsFunc(w.services.served(), func(s *service) bool {
		return slices.ContainsFunc(on.devices, func(d *device) bool {
			r := s.replicas[d.index]
			return r != nil && !r.loaded && !r.givenUp
		})
	})
}

// open gives a service that joins a free position.
func (w *workers) open(s *service, places []Place) error {
	id := models.ServiceID(len(w.services.list))
	if at := slices.Index(w.services.list, nil); at >= 0 {
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
	m := scheduled(id, &s.config)
	m.Of = "" // until it serves
	if err := w.env.step(overlap.Event{Kind: overlap.Add, Definition: m}); err != nil {
		return errors.Join(err, w.services.closeInputs(s))
	}
	if int(id) == len(w.services.list) { // also if it stays free: all tables are of one length
		w.services.list, w.services.specs = append(w.services.list, nil), append(w.services.specs, models.Service{ID: id})
	}
	err := w.env.forget(id, m.Operators)
	for i := range places {
		if err == nil {
			err = w.hire(s, s.replicas[places[i].Device])
		}
		if err != nil {
			for _, p := range places[:i] {
				_, rerr := w.env.devices[p.Device].exec.Remove(id)
				err = errors.Join(err, rerr)
			}
			return errors.Join(err, w.env.step(overlap.Event{Kind: overlap.Remove, Service: id}), w.env.drop(id), w.services.closeInputs(s))
		}
	}
	w.services.list[id], w.services.specs[id], w.services.reloaded = s, m, true
	return nil
}

// hire starts a worker of a service. Its model is cut as those of the others are.
func (w *workers) hire(s *service, r *replica) error {
	r.Worker.ID, r.Worker.Inputs, r.Worker.Moves = s.entry.ID, s.inputs, s.moves
	if c := r.Worker.Load.Choose; c != nil && s.info != nil && s.info.Cut != nil {
		same := *c
		same.Known, r.Worker.Load.Choose = s.info.Cut, &same
	}
	return w.env.devices[r.Device].exec.Add(r.Worker)
}

// hireAfter starts a worker of a service once the one before it on its device is gone,
// unless it is not wanted any more.
func (w *workers) hireAfter(s *service, r *replica, gone <-chan struct{}) {
	w.env.options.Goroutines.Go(func() {
		<-gone
		w.env.mail.tell(func() {
			if s.replicas[r.Device] != r || s.state > stateJoining {
				return
			}
			if err := w.hire(s, r); err != nil {
				w.env.log.Error().Err(err).Str("service", s.config.Name).Str("device", w.env.devices[r.Device].Name).Msg("starting a worker failed")
				r.fault, r.givenUp = err, true
				s.show()
			}
		})
	})
}

// heard takes in what happens to a worker of a service that joins.
func (w *workers) heard(s *service, r *replica, e *executor.Event) {
	j := s.joining
	switch e.Kind {
	case executor.WorkerProgress:
		select {
		case j.News <- config.Step{Service: s.config.Name, State: config.StepLoading, Done: e.Done, Total: e.Total}:
		default:
		}
	case executor.WorkerLost:
		if errors.Is(e.Err, executor.ErrHeld) {
			return // for the sake of others, who have limits of their own
		}
		hopeless := errors.Is(e.Err, executor.ErrLoad) && !errors.Is(e.Err, wire.ErrDeviceMemory)
		if r.lost++; r.lost >= loadTries || hopeless {
			w.services.withdraw(s, e.Err)
		}
	case executor.WorkerFailed:
		w.services.withdraw(s, e.Err)
	}
}

// spread gives a service workers on the devices that are new to it, and has those go
// that are not among its places any more.
func (w *workers) spread(s *service, places []Place) (err error) {
	for r := range s.each {
		r.leaves = true
	}
	for _, p := range places {
		if r := s.replicas[p.Device]; r != nil {
			r.leaves, p.GiveBack, p.Worker = false, r.GiveBack, r.Worker
			r.Place = p
			continue
		}
		r := &replica{Place: p}
		if gone := s.gone[p.Device]; gone != nil {
			s.replicas[p.Device], w.services.reloaded = r, true
			w.hireAfter(s, r, gone)
			continue
		}
		if herr := w.hire(s, r); herr != nil {
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
	for id, s := range w.services.list {
		if s == nil || s.state != stateServing {
			continue
		}
		for r := range s.each {
			if !r.leaves {
				continue
			}
			if !slices.ContainsFunc(s.replicas, func(o *replica) bool { return o != nil && o.ready && !o.leaves }) || w.env.devices[r.Device].taken || !s.flushed(w.env.now()) {
				w.shrinking++
				continue
			}
			w.withdrawFrom(models.ServiceID(id), s, r)
		}
	}
}

// withdrawFrom takes the worker of a service off a device.
func (w *workers) withdrawFrom(id models.ServiceID, s *service, r *replica) {
	_ = w.env.step(overlap.Event{Kind: overlap.Down, Service: id, Device: r.Device})
	s.replicas[r.Device] = nil
	s.show()
	w.env.changed()
	gone, err := w.env.devices[r.Device].exec.Remove(id)
	if err != nil {
		w.env.log.Error().Err(err).Str("service", s.config.Name).Msg("removing a worker from a device failed")
		return
	}
	if s.gone == nil {
		s.gone = map[int]<-chan struct{}{}
	}
	s.gone[r.Device] = gone
	w.env.options.Goroutines.Go(func() {
		<-gone
		r.GiveBack()
	})
	w.services.rebind = true
}

// take has a device run a round that measures. The scheduler, which has other devices
// for the queries that come meanwhile, takes it for one without workers; the only one is
// not asked about.
func (w *workers) take(d *device) {
	d.taken = true
	for id, s := range w.services.list {
		if len(w.env.devices) > 1 && s != nil && s.replicas[d.index] != nil {
			_ = w.env.step(overlap.Event{Kind: overlap.Down, Service: models.ServiceID(id), Device: d.index})
		}
	}
}

// giveBack has a device run rounds of queries again.
func (w *workers) giveBack(d *device) {
	d.taken = false
	for id := range w.services.list {
		if len(w.env.devices) > 1 {
			w.resume(models.ServiceID(id), d)
		}
	}
}

// resume has a service run on a device, if it can.
func (w *workers) resume(id models.ServiceID, d *device) {
	s := w.services.list[id]
	if s == nil || s.state == stateLeaving {
		return
	}
	if r := s.replicas[d.index]; r != nil && r.ready && !r.overrun && (!d.taken || len(w.env.devices) == 1) {
		_ = w.env.step(overlap.Event{Kind: overlap.Up, Service: id, Device: d.index})
	}
}
