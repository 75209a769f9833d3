package daemon

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// fleet is the services of an instance and their workers: which serve, which come
// and which go. Everything knows a service by its position here. One that changes
// its model is another service for a while: it loads beside the old one and then
// takes over its name.
type fleet struct {
	*core
	members  []*member        // by service ID
	specs    []models.Service // as the scheduler knows them, by ID
	order    []string         // of the services, as the configuration has them
	reloaded bool             // services came or went since the start
	leaving  int              // services that are retired and not gone

	withoutMPS error // why there are no workers any more, nil if there may be

	late    []*executor.Event // came while a round of their service runs
	loading loading
}

// member is a service of the fleet with its worker. Its position is the ID by which
// scheduler, executor and predictor know it; a position that is free holds nil. A
// member belongs to the scheduler goroutine.
type member struct {
	service *query.Service
	config  config.Service
	threads int // of its worker
	worker  worker
	release func() // gives back what it was admitted to of a GPU's memory

	state   memberState
	joining *joining      // while it joins
	ended   chan struct{} // closed when a service that was retired is gone, nil if nobody waits

	// A service that takes over a name goes on with what the one before has
	// counted, so that no series of metrics goes backward. Series is the ID under
	// which its queries are counted: its own, or that of its heir.
	series   models.ServiceID
	past     overlap.ServiceMetrics // of those whose name it has, and that are gone
	restarts uint64                 // of their workers
	starts   uint64                 // of its own worker
}

// memberState is where a service stands between coming and going.
type memberState uint8

const (
	stateServing  memberState = iota // requests find it
	stateJoining                     // it loads its model for the first time
	stateRetiring                    // requests do not find it any more, and those that did are answered
	stateLeaving                     // its worker ends
)

// joining is a service on its way to take requests.
type joining struct {
	news  chan config.Step
	ready chan error // holds one: nil, or why it does not come
	lost  int        // workers
}

// pass passes progress on to the reload, and drops it if the reload reads too
// slowly.
func (j *joining) pass(s config.Step) {
	select {
	case j.news <- s:
	default:
	}
}

// worker is what the loop knows of a service's worker.
type worker struct {
	info    *wire.Info // what the last one learned of its model, nil before
	fresh   bool       // it became ready after the last round of its service was sent
	fault   error      // why it was given up, nil if that is not known
	givenUp bool       // it was lost too often and does not come back, or has a model that cannot be served
}

// scheduled returns a service as the scheduler first sees it. Its operators
// are not known before its worker has loaded the model; until then it is down.
func scheduled(id models.ServiceID, s *config.Service) models.Service {
	return models.Service{
		ID: id, Name: s.Name, Operators: 1,
		QoSTarget: s.Target, QueueLimit: s.QueueLimit, MaxBatch: s.MaxBatch, BestEffort: s.BestEffort,
	}
}

// startedAgain returns how often workers were started again, its own and those of the
// services whose place it has taken.
func (s *member) startedAgain() uint64 { return s.restarts + max(s.starts, 1) - 1 }

// furnish fills in what follows from the configuration of a member.
func (u *instance) furnish(s *member) {
	if s.threads = u.threads(&s.config); u.emulation == nil {
		return
	}
	known := u.emulation.model(&s.config)
	s.service.MaxQueryBatch = min(s.service.MaxQueryBatch, slices.Max(known.Sizes))
	s.service.MaxSeqLen = slices.Max(known.SeqLens)
}

// name returns the name of a service. Late news may be of one that
// is gone.
func (f *fleet) name(id models.ServiceID) string {
	if s := f.members[id]; s != nil {
		return s.config.Name
	}
	return "(removed)"
}

// settled reports whether every worker has loaded its model or was given up.
func (f *fleet) settled() bool {
	for _, s := range f.served() {
		if w := &s.worker; w.info == nil && !w.givenUp {
			return false
		}
	}
	return true
}

// served returns the services that requests find.
func (f *fleet) served() (list []*member) {
	for _, s := range f.members {
		if s != nil && s.state == stateServing {
			list = append(list, s)
		}
	}
	return list
}

// share is shareOf a service.
func (f *fleet) share(id models.ServiceID) string {
	s := f.members[id]
	return shareOf(s.threads, &s.config, f.part != nil)
}

// loadTries is how often the worker of a service that joins may be lost before
// it is given up for reasons that another try may not have. What the model is
// at fault for is given up at once.
const loadTries = 3

var (
	errNoPlace   = fmt.Errorf("there are %d services and their replacements: take others away first", overlap.MaxServices)
	errNotServed = errors.New("the service is not served any more")
)

// join starts the worker of a service that queries cannot reach yet. Once it is
// ready the service takes the place of the one of its name, if there is one.
func (u *instance) join(c *config.Service, j *joining) (s *member, err error) {
	s = &member{config: *c, state: stateJoining, joining: j}
	spec, release, err := u.spec(0, c)
	if err == nil {
		err = spec.Refused
	}
	if err != nil {
		return nil, err
	}
	s.release = release
	if !u.backend.ask(func(l *loop) { err = l.fleet.open(u, s, spec) }) {
		err = ErrStopping
	}
	if err != nil {
		s.release()
	}
	return s, err
}

// open gives a service that joins a free position.
func (f *fleet) open(u *instance, s *member, spec executor.ServiceSpec) error {
	id := models.ServiceID(len(f.members))
	if at := slices.Index(f.members, nil); at >= 0 {
		id = models.ServiceID(at)
	}
	switch {
	case id >= overlap.MaxServices:
		return errNoPlace
	case f.withoutMPS != nil:
		return f.withoutMPS
	}
	s.service, s.series = newService(id, &s.config, f.config.Policy, f.backend), id
	u.furnish(s)
	m := scheduled(id, &s.config)
	if err := f.scheduler.Add(f.now(), m); err != nil {
		return err
	}
	if int(id) == len(f.members) { // also if it stays free: all tables are of one length
		f.members, f.specs = append(f.members, nil), append(f.specs, models.Service{ID: id})
	}
	if err := f.predictor.Reset(id, m.Operators); err != nil {
		return errors.Join(err, f.scheduler.Remove(f.now(), id))
	}
	spec.ID = id
	if err := f.exec.Add(spec); err != nil {
		return errors.Join(err, f.scheduler.Remove(f.now(), id), f.predictor.Drop(id))
	}
	f.members[id], f.specs[id], f.reloaded = s, m, true
	f.emit(observe.Event{Kind: observe.Added, Service: &m})
	return nil
}

// heard takes in what happens to the worker of a service that joins.
func (f *fleet) heard(s *member, e *executor.Event) {
	j := s.joining
	switch e.Kind {
	case executor.WorkerProgress:
		j.pass(config.Step{Service: s.config.Name, State: config.StepLoading, Done: e.Done, Total: e.Total})
	case executor.WorkerLost:
		if errors.Is(e.Err, executor.ErrHeld) {
			return // for the sake of others, who have limits of their own
		}
		hopeless := errors.Is(e.Err, executor.ErrLoad) && !errors.Is(e.Err, wire.ErrDeviceMemory)
		if j.lost++; j.lost >= loadTries || hopeless {
			f.withdraw(s, e.Err)
		}
	case executor.WorkerFailed:
		f.withdraw(s, e.Err)
	}
}

// withdraw lets a service that was to join go again. It does nothing to one that
// has.
func (f *fleet) withdraw(s *member, cause error) {
	if s.state == stateJoining {
		f.retire(s, nil)
		s.joining.ready <- cause
	}
}

// takeOver lets a service that has joined answer queries, in the place of the
// one of its name. It goes on with what that one has counted.
func (f *fleet) takeOver(s *member) {
	if s.state != stateJoining {
		return
	}
	old := f.serving(s.config.Name)
	s.state = stateServing
	f.emit(observe.Event{Kind: observe.Set, Service: &f.specs[s.service.ID], Fresh: old == nil})
	if old != nil {
		f.inherit(s, old)
		f.retire(old, nil)
	}
	f.publish()
	s.joining.ready <- nil
}

// inherit lets no series of metrics go backward.
func (f *fleet) inherit(s, old *member) {
	s.service.Stats = old.service.Stats
	s.past, s.restarts = old.past, old.startedAgain()
	f.emit(observe.Event{Kind: observe.Inherited, From: old.series, Series: s.series})
	from := old.series
	for _, other := range f.members {
		if other != nil && other.series == from {
			other.series = s.series
		}
	}
}

// change gives a service other targets. Queries that were accepted keep theirs.
func (f *fleet) change(u *instance, s *member, c *config.Service) error {
	if s == nil {
		return errNotServed
	}
	id := s.service.ID
	m := scheduled(id, c)
	m.Operators = f.specs[id].Operators
	next := &member{config: *c, service: renewed(s.service, c)}
	u.furnish(next)
	if info := s.worker.info; info != nil {
		if err := next.service.Loaded(f.infoOf(info)); err != nil {
			return err
		}
		if !next.service.Batched() {
			m.MaxBatch = 1
		}
	}
	if err := f.scheduler.Change(f.now(), m); err != nil {
		return err
	}
	f.specs[id], s.config, s.service = m, *c, next.service
	f.emit(observe.Event{Kind: observe.Set, Service: &m})
	f.publish()
	return nil
}

// retire lets a service take no further requests. It goes when it has answered
// those it has; ended is closed then, unless it is nil.
func (f *fleet) retire(s *member, ended chan struct{}) {
	if s == nil || s.state > stateJoining {
		if ended != nil {
			close(ended)
		}
		return
	}
	s.state, s.ended = stateRetiring, ended
	f.leaving++
	f.reloaded = true
	f.publish()
	s.service.Retire()
	f.learner.stop()
	f.learner.learning.Changed()
}

// reap takes out the services that have nothing left to do.
func (f *fleet) reap() {
	if f.leaving == 0 || f.learner.measurement.active() {
		return
	}
	for i, s := range f.members {
		if s != nil && s.state == stateRetiring && !s.service.InUse() {
			f.takeOut(models.ServiceID(i), s)
		}
	}
}

func (f *fleet) takeOut(id models.ServiceID, s *member) {
	counted := f.scheduler.Metrics().Services[id]
	if f.scheduler.Remove(f.now(), id) != nil {
		return // it still has queries
	}
	if heir := f.members[s.series]; heir != s {
		heir.past.Add(counted)
	}
	s.state = stateLeaving
	gone, err := f.exec.Remove(id)
	if err != nil {
		f.left(id, err)
		return
	}
	f.goroutines.Go(func() {
		err := <-gone
		f.tell(message{ask: func(*loop) { f.left(id, err) }})
	})
}

// left frees the position of a service of which nothing is left. If somebody still reads the
// memory of the service, nobody else may have the position, but all else goes.
func (f *fleet) left(id models.ServiceID, err error) {
	s := f.members[id]
	if s.ended != nil {
		defer close(s.ended)
	}
	leaks := errors.Is(err, executor.ErrLeak)
	if !leaks {
		f.members[id], f.specs[id] = nil, models.Service{ID: id}
	}
	f.leaving--
	for i, other := range f.members {
		if other != nil && other.series == id {
			other.series = models.ServiceID(i) // its heir is gone before it
		}
	}
	err = errors.Join(err, f.predictor.Drop(id))
	f.emit(observe.Event{Kind: observe.Dropped, Service: &models.Service{ID: id}})
	switch {
	case leaks:
		f.log.Error().Err(err).Str("service", s.config.Name).Msg("a service that was taken away keeps its place until overlapd is restarted")
	case err != nil && !errors.Is(err, executor.ErrClosed):
		f.log.Error().Err(err).Str("service", s.config.Name).Msg("taking a service away")
	}
	s.release()
	f.learner.bind()
}

// serving returns the service that requests for a name reach, or
// nil.
func (f *fleet) serving(name string) *member {
	for _, s := range f.members {
		if s != nil && s.state == stateServing && s.config.Name == name {
			return s
		}
	}
	return nil
}

// publish lets requests find the services that serve, in their order.
func (f *fleet) publish() {
	var list []*query.Service
	for _, name := range f.order {
		if s := f.serving(name); s != nil {
			list = append(list, s.service)
		}
	}
	for _, s := range f.members {
		if s != nil && s.state == stateServing && !slices.Contains(f.order, s.config.Name) {
			list = append(list, s.service)
		}
	}
	f.Publish(list)
}

// counted returns what the services have counted together whose queries are
// counted under that of a member.
func (f *fleet) counted(s *member, m *overlap.Metrics) overlap.ServiceMetrics {
	sum := s.past
	for i, other := range f.members {
		if other != nil && other.series == s.series {
			sum.Add(m.Services[i])
		}
	}
	sum.Name, sum.Down = s.config.Name, m.Services[s.service.ID].Down
	return sum
}
