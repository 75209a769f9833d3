package daemon

import (
	"errors"
	"fmt"
	"github.com/overlapd/overlapd/daemon/observe"
	"slices"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// loadTries is how often the worker of a service that joins may be lost before
// it is given up for reasons that another try may not have. What the model is
// at fault for is given up at once.
const loadTries = 3

var (
	errNoSlot    = fmt.Errorf("there are %d services and their replacements: take others away first", overlap.MaxServices)
	errNotServed = errors.New("the service is not served any more")
)

// join starts the worker of a service that queries cannot reach yet. Once it is
// ready the service takes the place of the one of its name, if there is one.
func (u *unit) join(c *config.Service, j *joining) (s *slot, err error) {
	s = &slot{config: *c, state: slotJoining, joining: j}
	spec, release, err := u.spec(0, c)
	if err == nil {
		err = spec.Refused
	}
	if err != nil {
		return nil, err
	}
	s.release = release
	if !u.backend.ask(func(l *loop) { err = l.open(u, s, spec) }) {
		err = ErrStopping
	}
	if err != nil {
		s.release()
	}
	return s, err
}

// open gives a service that joins a free slot.
func (l *loop) open(u *unit, s *slot, spec executor.ServiceSpec) error {
	id := models.ServiceID(len(l.slots))
	if at := slices.Index(l.slots, nil); at >= 0 {
		id = models.ServiceID(at)
	}
	switch {
	case id >= overlap.MaxServices:
		return errNoSlot
	case l.withoutMPS != nil:
		return l.withoutMPS
	}
	s.service, s.series = newService(id, &s.config, l.config.Policy, l.backend), id
	u.furnish(s)
	m := scheduled(id, &s.config)
	if err := l.scheduler.Add(l.now(), m); err != nil {
		return err
	}
	if int(id) == len(l.slots) { // also if it stays free: all tables are of one length
		l.slots, l.specs = append(l.slots, nil), append(l.specs, models.Service{ID: id})
	}
	if err := l.predictor.Reset(id, m.Operators); err != nil {
		return errors.Join(err, l.scheduler.Remove(l.now(), id))
	}
	spec.ID = id
	if err := l.exec.Add(spec); err != nil {
		return errors.Join(err, l.scheduler.Remove(l.now(), id), l.predictor.Drop(id))
	}
	l.slots[id], l.specs[id], l.reloaded = s, m, true
	l.emit(observe.Event{Kind: observe.Added, Service: m})
	return nil
}

// heard takes in what happens to the worker of a service that joins.
func (l *loop) heard(s *slot, e executor.Event) {
	j := s.joining
	switch e := e.(type) {
	case executor.WorkerProgress:
		j.tell(config.Step{Service: s.config.Name, State: config.StepLoading, Done: e.Done, Total: e.Total})
	case executor.WorkerLost:
		if errors.Is(e.Err, executor.ErrHeld) {
			return // for the sake of others, who have limits of their own
		}
		hopeless := errors.Is(e.Err, executor.ErrLoad) && !errors.Is(e.Err, wire.ErrDeviceMemory)
		if j.lost++; j.lost >= loadTries || hopeless {
			l.withdraw(s, e.Err)
		}
	case executor.WorkerFailed:
		l.withdraw(s, e.Err)
	}
}

// withdraw lets a service that was to join go again. It does nothing to one that
// has.
func (l *loop) withdraw(s *slot, cause error) {
	if s.state == slotJoining {
		l.retire(s, nil)
		s.joining.ready <- cause
	}
}

// takeOver lets a service that has joined answer queries, in the place of the
// one of its name. It goes on with what that one has counted.
func (l *loop) takeOver(s *slot) {
	if s.state != slotJoining {
		return
	}
	old := l.serving(s.config.Name)
	s.state = slotServing
	l.emit(observe.Event{Kind: observe.Set, Service: l.specs[s.service.ID], Fresh: old == nil})
	if old != nil {
		l.inherit(s, old)
		l.retire(old, nil)
	}
	l.publishServices()
	s.joining.ready <- nil
}

// inherit lets no series of metrics go backward.
func (l *loop) inherit(s, old *slot) {
	s.service.Stats = old.service.Stats
	s.past, s.restarts = old.past, old.startedAgain()
	l.emit(observe.Event{Kind: observe.Inherited, From: old.series, Series: s.series})
	from := old.series
	for _, other := range l.slots {
		if other != nil && other.series == from {
			other.series = s.series
		}
	}
}

// change gives a service other targets. Queries that were accepted keep theirs.
func (l *loop) change(u *unit, s *slot, c *config.Service) error {
	if s == nil {
		return errNotServed
	}
	id := s.service.ID
	m := scheduled(id, c)
	m.Operators = l.specs[id].Operators
	next := &slot{config: *c, service: renewed(s.service, c)}
	u.furnish(next)
	if info := s.worker.info; info != nil {
		if err := next.service.Loaded(l.infoOf(info)); err != nil {
			return err
		}
		if !next.service.Batched() {
			m.MaxBatch = 1
		}
	}
	if err := l.scheduler.Change(l.now(), m); err != nil {
		return err
	}
	l.specs[id], s.config, s.service = m, *c, next.service
	l.emit(observe.Event{Kind: observe.Set, Service: m})
	l.publishServices()
	return nil
}

// retire lets a service take no further requests. It goes when it has answered
// those it has; ended is closed then, unless it is nil.
func (l *loop) retire(s *slot, ended chan struct{}) {
	if s == nil || s.state > slotJoining {
		if ended != nil {
			close(ended)
		}
		return
	}
	s.state, s.ended = slotRetiring, ended
	l.leaving++
	l.reloaded = true
	l.publishServices()
	s.service.Retire()
	l.stopLearning()
	l.learning.Changed()
}

// reap takes out the services that have nothing left to do.
func (l *loop) reap() {
	if l.leaving == 0 || l.measurement.active() {
		return
	}
	for i, s := range l.slots {
		if s != nil && s.state == slotRetiring && !s.service.InUse() {
			l.takeOut(models.ServiceID(i), s)
		}
	}
}

func (l *loop) takeOut(id models.ServiceID, s *slot) {
	counted := l.scheduler.Metrics().Services[id]
	if l.scheduler.Remove(l.now(), id) != nil {
		return // it still has queries
	}
	if heir := l.slots[s.series]; heir != s {
		heir.past.Add(counted)
	}
	s.state = slotLeaving
	gone, err := l.exec.Remove(id)
	if err != nil {
		l.left(id, err)
		return
	}
	l.goroutines.Go(func() {
		err := <-gone
		l.tell(message{ask: func(l *loop) { l.left(id, err) }})
	})
}

// left frees a slot of whose service nothing is left. If somebody still reads the
// memory of the service, nobody else may have the slot, but all else goes.
func (l *loop) left(id models.ServiceID, err error) {
	s := l.slots[id]
	if s.ended != nil {
		defer close(s.ended)
	}
	leaks := errors.Is(err, executor.ErrLeak)
	if !leaks {
		l.slots[id], l.specs[id] = nil, models.Service{ID: id}
	}
	l.leaving--
	for i, other := range l.slots {
		if other != nil && other.series == id {
			other.series = models.ServiceID(i) // its heir is gone before it
		}
	}
	err = errors.Join(err, l.predictor.Drop(id))
	l.emit(observe.Event{Kind: observe.Dropped, Service: models.Service{ID: id}})
	switch {
	case leaks:
		l.log.Error().Err(err).Str("service", s.config.Name).Msg("a service that was taken away keeps its place until overlapd is restarted")
	case err != nil && !errors.Is(err, executor.ErrClosed):
		l.log.Error().Err(err).Str("service", s.config.Name).Msg("taking a service away")
	}
	s.release()
	l.bindPredictor()
}

// serving returns the slot of the service that requests for a name reach, or
// nil.
func (l *loop) serving(name string) *slot {
	for _, s := range l.slots {
		if s != nil && s.state == slotServing && s.config.Name == name {
			return s
		}
	}
	return nil
}

// publishServices lets requests find the services that serve, in their order.
func (l *loop) publishServices() {
	var list []*query.Service
	for _, name := range l.order {
		if s := l.serving(name); s != nil {
			list = append(list, s.service)
		}
	}
	for _, s := range l.slots {
		if s != nil && s.state == slotServing && !slices.Contains(l.order, s.config.Name) {
			list = append(list, s.service)
		}
	}
	l.Publish(list)
}

// counted returns what the services have counted together whose queries are
// counted under a slot.
func (l *loop) counted(s *slot, m *overlap.Metrics) overlap.ServiceMetrics {
	sum := s.past
	for i, other := range l.slots {
		if other != nil && other.series == s.series {
			sum.Add(m.Services[i])
		}
	}
	sum.Name, sum.Down = s.config.Name, m.Services[s.service.ID].Down
	return sum
}
