package loop

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// fleet is the services of the pool and their workers: which serve, which come
// and which go. Everything knows a service by its position here. One that changes
// its model is another service for a while: it loads beside the old one and then
// takes over its name.
type fleet struct {
	*core
	members  []*member        // by service ID
	specs    []models.Service // as the scheduler knows them, by ID
	order    []string         // the names of the services, as the configuration has them
	reloaded bool             // services came or went since the start
	leaving  int              // services that are retired and not gone

	shrinking int // workers that go as soon as another one serves

	answerOver func() // answers the queries that are over with a worker

	loading loading
}

// member is a service of the fleet with its workers. Its position is the ID by which
// scheduler, executors and predictors know it; a position that is free holds nil. A
// member belongs to the scheduler goroutine.
type member struct {
	service  *query.Service
	inputs   *wire.InputArena // of its queries, which all of its workers read
	config   config.Service
	replicas []*replica              // by device, nil where it has no worker
	info     *wire.Info              // what a worker last learned of the model, nil before
	gone     map[int]<-chan struct{} // by device that it has left: closed when nothing of its worker there is left

	overrunLogged time.Duration // when the log last had a line about overruns of the service, 0 for never

	state   memberState
	joining *Joining      // while it joins
	ended   chan struct{} // closed when a service that was retired is gone, nil if nobody waits

	line *lineage // never nil
}

// replica is the worker of a service on a device.
type replica struct {
	Place
	ready   bool  // spans can be run
	fresh   bool  // it became ready after the last round of the service was sent
	loaded  bool  // it was ready once
	overrun bool  // a span that measured runs on, and nothing else can
	started bool  // once at least
	givenUp bool  // no worker is expected soon
	fault   error // why, nil if that is not known
	retryAt int64 // when it is tried again, in nanoseconds of Unix time, 0 if by hand only
	lost    int   // workers, while the service joins
	recut   bool  // it was started again to be cut as the others are
	leaves  bool  // it goes as soon as another one serves
}

// newMember returns a service with its places on so many devices.
func newMember(c *config.Service, places []Place, devices int) *member {
	s := &member{config: *c, replicas: make([]*replica, devices), line: new(lineage)}
	for _, p := range places {
		s.replicas[p.Device] = &replica{Place: p}
	}
	return s
}

// each yields the replicas there are.
func (s *member) each(yield func(r *replica) bool) {
	for _, r := range s.replicas {
		if r != nil && !yield(r) {
			return
		}
	}
}

// on returns a replica on a device of a kind, or nil.
func (s *member) on(k *kind) *replica {
	for _, d := range k.devices {
		if r := s.replicas[d.index]; r != nil {
			return r
		}
	}
	return nil
}

// givenUp reports whether no worker is expected on any of some devices.
func (s *member) givenUp(devices []*device) bool {
	return !slices.ContainsFunc(devices, func(d *device) bool { r := s.replicas[d.index]; return r != nil && !r.givenUp })
}

// fault returns why the service was given up, nil if that is not known.
func (s *member) fault() error {
	for r := range s.each {
		if r.fault != nil {
			return r.fault
		}
	}
	return nil
}

// show lets requests see how the workers stand: one that serves is enough.
func (s *member) show() {
	ready, givenUp, retryAt := false, true, int64(0)
	for r := range s.each {
		ready, givenUp = ready || r.ready, givenUp && r.givenUp
		if r.retryAt > 0 && (retryAt == 0 || r.retryAt < retryAt) {
			retryAt = r.retryAt
		}
	}
	s.service.RetryAt.Store(retryAt)
	s.service.GivenUp.Store(givenUp)
	s.service.SetReady(ready)
}

// giveBack returns what the service was admitted to.
func (s *member) giveBack() {
	for r := range s.each {
		r.GiveBack()
	}
}

// lineage is what was counted of the services that had a name one after another. Who
// takes over a name goes on with it, so that no series of metrics goes backward.
type lineage struct {
	past     overlap.ServiceMetrics // of those that are gone
	restarts uint64                 // times that a worker was started again
	overruns uint64                 // spans that were set apart

	turnedAway [len(query.TurnedAwayFor)]uint64 // queries, as others were told last
}

// memberState is where a service stands between coming and going.
type memberState uint8

const (
	stateServing  memberState = iota // requests find it
	stateJoining                     // it loads its model for the first time
	stateRetiring                    // requests do not find it any more, and those that did are answered
	stateLeaving                     // its worker ends
)

// newsLimit is how much progress of a load may wait to be read; what does not fit
// is dropped.
const newsLimit = 64

// Joining is a service on its way to take requests. Ready holds one value in the
// end: nil once the service serves, or why it does not come.
type Joining struct {
	News   chan config.Step
	Ready  chan error
	member *member
}

// scheduled returns a service as the scheduler first sees it. Its operators
// are not known before its worker has loaded the model; until then it is down.
func scheduled(id models.ServiceID, s *config.Service) models.Service {
	return models.Service{
		ID: id, Name: s.Name, Operators: 1,
		QoSTarget: s.Target, QueueLimit: s.QueueLimit, MaxBatch: s.MaxBatch, BestEffort: s.BestEffort,
	}
}

// furnish gives a member its service, not loaded yet, and memory for its inputs.
func (c *core) furnish(m *member, id models.ServiceID) (err error) {
	if m.inputs, err = wire.NewInputArena(c.config.Worker.InputBytes); err != nil {
		return fmt.Errorf("service %s: memory for inputs: %w", m.config.Name, err)
	}
	m.service = query.NewService(id, m.config.Name)
	m.service.Policy, m.service.Backend = c.config.Policy, &desk{core: c, inputs: m.inputs}
	setTargets(m.service, &m.config, m.each)
	return nil
}

// setTargets sets what a configuration entry says, within what emulated devices
// know of the model.
func setTargets(s *query.Service, c *config.Service, places func(func(*replica) bool)) {
	s.QoSTarget, s.QueueLimit, s.MaxBatch, s.MaxQueryBatch, s.MaxSeqLen = c.Target, c.QueueLimit, c.MaxBatch, c.MaxQueryBatch, 0
	for p := range places {
		if p.Model == "" {
			continue
		}
		s.MaxQueryBatch = min(s.MaxQueryBatch, p.MaxBatch)
		if s.MaxSeqLen == 0 || p.MaxSeqLen < s.MaxSeqLen {
			s.MaxSeqLen = p.MaxSeqLen
		}
	}
}

// name returns the name of a service. Late news may be of one that
// is gone.
func (f *fleet) name(id models.ServiceID) string {
	if s := f.members[id]; s != nil {
		return s.config.Name
	}
	return "(removed)"
}

// settled reports whether every worker on devices of a kind has loaded its model or was
// given up.
func (f *fleet) settled(on *kind) bool {
	return !slices.ContainsFunc(f.served(), func(s *member) bool {
		return slices.ContainsFunc(on.devices, func(d *device) bool {
			r := s.replicas[d.index]
			return r != nil && !r.loaded && !r.givenUp
		})
	})
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

// turnedAway tells the listeners how many queries did not come to the scheduler since
// they were last told.
func (f *fleet) turnedAway() {
	for _, s := range f.served() {
		counts, fresh := s.service.Stats.Counts().TurnedAway, [len(query.TurnedAwayFor)]uint64{}
		if counts == s.line.turnedAway {
			continue
		}
		for i := range counts {
			fresh[i] = counts[i] - s.line.turnedAway[i]
		}
		s.line.turnedAway = counts
		f.emit(observe.Event{Kind: observe.TurnedAway, At: f.Now(), Service: &f.specs[s.service.ID], Turned: &fresh})
	}
}

// loadTries is how often the worker of a service that joins may be lost before
// it is given up for reasons that another try may not have. What the model is
// at fault for is given up at once.
const loadTries = 3

// open gives a service that joins a free position.
func (f *fleet) open(s *member, places []Place) error {
	id := models.ServiceID(len(f.members))
	if at := slices.Index(f.members, nil); at >= 0 {
		id = models.ServiceID(at)
	}
	if id >= predictor.MaxServices {
		return fmt.Errorf("there are %d services and their replacements: take others away first", predictor.MaxServices)
	}
	for _, p := range places {
		if err := f.devices[p.Device].noWorkers; err != nil {
			return err
		}
	}
	if err := f.furnish(s, id); err != nil {
		return err
	}
	m := scheduled(id, &s.config)
	if err := f.scheduler.Add(f.Now(), m); err != nil {
		return errors.Join(err, s.closeInputs())
	}
	if int(id) == len(f.members) { // also if it stays free: all tables are of one length
		f.members, f.specs = append(f.members, nil), append(f.specs, models.Service{ID: id})
	}
	err := f.forget(id, m.Operators)
	for i := range places {
		if err == nil {
			err = f.hire(s, s.replicas[places[i].Device])
		}
		if err != nil {
			for _, p := range places[:i] {
				_, rerr := f.devices[p.Device].exec.Remove(id)
				err = errors.Join(err, rerr)
			}
			return errors.Join(err, f.scheduler.Remove(f.Now(), id), f.drop(id), s.closeInputs())
		}
	}
	f.members[id], f.specs[id], f.reloaded = s, m, true
	return nil
}

// hire starts a worker of a service. Its model is cut as those of the others are.
func (f *fleet) hire(s *member, r *replica) error {
	r.Worker.ID, r.Worker.Inputs = s.service.ID, s.inputs
	if c := r.Worker.Load.Choose; c != nil && s.info != nil && s.info.Cut != nil {
		same := *c
		same.Known, r.Worker.Load.Choose = s.info.Cut, &same
	}
	return f.devices[r.Device].exec.Add(r.Worker)
}

// hireAfter starts a worker of a service once the one before it on its device is gone,
// unless it is not wanted any more.
func (f *fleet) hireAfter(s *member, r *replica, gone <-chan struct{}) {
	f.Goroutines.Go(func() {
		<-gone
		f.tell(message{ask: func() {
			if s.replicas[r.Device] != r || s.state > stateJoining {
				return
			}
			if err := f.hire(s, r); err != nil {
				f.Log.Error().Err(err).Str("service", s.config.Name).Str("device", f.devices[r.Device].Name).Msg("a worker cannot be started")
				r.fault, r.givenUp = err, true
				s.show()
			}
		}})
	})
}

// heard takes in what happens to a worker of a service that joins.
func (f *fleet) heard(s *member, r *replica, e *executor.Event) {
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
		s.joining.Ready <- cause
	}
}

// takeOver lets a service that has joined answer queries, in the place of the
// one of its name, once all of its workers are ready. It goes on with what that one has
// counted.
func (f *fleet) takeOver(s *member) {
	for r := range s.each {
		if s.state != stateJoining || !r.ready {
			return
		}
	}
	old := f.serving(s.config.Name)
	s.state = stateServing
	f.emit(observe.Event{Kind: observe.Set, Service: &f.specs[s.service.ID], Fresh: old == nil})
	if old != nil {
		old.line.restarts += s.line.restarts
		s.line, s.service.Stats = old.line, old.service.Stats
		f.retire(old, nil)
	}
	f.publish()
	s.joining.Ready <- nil
}

// change gives a service other targets. Queries that were accepted keep theirs.
func (f *fleet) change(s *member, c *config.Service, places []Place) error {
	id := s.service.ID
	m := scheduled(id, c)
	m.Operators = f.specs[id].Operators
	next := s.service.Successor()
	setTargets(next, c, newMember(c, places, len(f.devices)).each)
	if info := s.info; info != nil {
		if err := next.Loaded(s.service.Signature().Info); err != nil {
			return err
		}
		if _, err := query.CheckModel(c.Name, info.Inputs, info.Outputs, c.MaxBatch); err != nil {
			return err
		}
	}
	if err := f.scheduler.Change(f.Now(), m); err != nil {
		return err
	}
	f.specs[id], s.config, s.service = m, *c, next
	f.emit(observe.Event{Kind: observe.Set, Service: &m})
	f.publish()
	return nil
}

// spread gives a service workers on the devices that are new to it, and has those go
// that are not among its places any more.
func (f *fleet) spread(s *member, places []Place) (err error) {
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
			s.replicas[p.Device], f.reloaded = r, true
			f.hireAfter(s, r, gone)
			continue
		}
		if herr := f.hire(s, r); herr != nil {
			p.GiveBack()
			err = errors.Join(err, herr)
			continue
		}
		s.replicas[p.Device], f.reloaded = r, true
	}
	for r := range s.each {
		if r.leaves {
			f.shrinking++
		}
	}
	return err
}

// shrink takes workers away whose services have left their devices, and of which
// another one serves.
func (f *fleet) shrink() {
	if f.shrinking == 0 {
		return
	}
	f.shrinking = 0
	for id, s := range f.members {
		if s == nil || s.state != stateServing {
			continue
		}
		for r := range s.each {
			if !r.leaves {
				continue
			}
			if !slices.ContainsFunc(s.replicas, func(o *replica) bool { return o != nil && o.ready && !o.leaves }) || f.devices[r.Device].taken {
				f.shrinking++
				continue
			}
			f.withdrawFrom(models.ServiceID(id), s, r)
		}
	}
}

// withdrawFrom takes the worker of a service off a device.
func (f *fleet) withdrawFrom(id models.ServiceID, s *member, r *replica) {
	f.scheduler.Down(f.Now(), id, r.Device)
	s.replicas[r.Device] = nil
	s.show()
	f.changed()
	gone, err := f.devices[r.Device].exec.Remove(id)
	if err != nil {
		f.Log.Error().Err(err).Str("service", s.config.Name).Msg("taking a worker off a device")
		return
	}
	if s.gone == nil {
		s.gone = map[int]<-chan struct{}{}
	}
	s.gone[r.Device] = gone
	f.Goroutines.Go(func() {
		<-gone
		r.GiveBack()
	})
	f.rebind()
}

// take has a device run a round that measures. The scheduler, which has other devices
// for the queries that come meanwhile, takes it for one without workers; the only one is
// not asked about.
func (f *fleet) take(d *device) {
	d.taken = true
	for id, s := range f.members {
		if len(f.devices) > 1 && s != nil && s.replicas[d.index] != nil {
			f.scheduler.Down(f.Now(), models.ServiceID(id), d.index)
		}
	}
}

// giveBack has a device run rounds of queries again.
func (f *fleet) giveBack(d *device) {
	d.taken = false
	for id := range f.members {
		if len(f.devices) > 1 {
			f.resume(models.ServiceID(id), d)
		}
	}
}

// resume has a service run on a device, if it can.
func (f *fleet) resume(id models.ServiceID, d *device) {
	s := f.members[id]
	if s == nil || s.state == stateLeaving {
		return
	}
	if r := s.replicas[d.index]; r != nil && r.ready && !r.overrun && (!d.taken || len(f.devices) == 1) {
		f.scheduler.Up(f.Now(), id, d.index)
	}
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
	s.service.Retired.Store(true)
	for _, k := range f.kinds {
		k.stop()
	}
	f.changed()
}

// reap takes out the services that have nothing left to do.
func (f *fleet) reap() {
	f.shrink()
	if f.leaving == 0 || f.measuring() {
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
	if f.scheduler.Remove(f.Now(), id) != nil {
		return // it still has queries
	}
	s.line.past.Add(counted)
	s.state = stateLeaving
	var all []<-chan struct{}
	var errs []error
	for r := range s.each {
		gone, err := f.devices[r.Device].exec.Remove(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, gone)
	}
	f.Goroutines.Go(func() {
		for _, gone := range all {
			<-gone
		}
		f.tell(message{ask: func() { f.left(id, errors.Join(errs...)) }})
	})
}

// left frees the position of a service of which no worker is left.
func (f *fleet) left(id models.ServiceID, err error) {
	s := f.members[id]
	if s.ended != nil {
		defer close(s.ended)
	}
	f.members[id], f.specs[id] = nil, models.Service{ID: id}
	f.leaving--
	err = errors.Join(err, f.drop(id), s.closeInputs())
	f.emit(observe.Event{Kind: observe.Dropped, Service: &models.Service{ID: id}})
	if err != nil && !errors.Is(err, executor.ErrClosed) {
		f.Log.Error().Err(err).Str("service", s.config.Name).Msg("taking a service away")
	}
	s.giveBack()
	f.rebind()
}

// closeInputs gives up the memory for the inputs of a service whose workers are gone.
// What somebody has not given back stays mapped until he does.
func (s *member) closeInputs() error {
	n, err := s.inputs.Close()
	if n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d inputs of service %s", executor.ErrLeak, n, s.config.Name))
	}
	return err
}

// serving returns the service that requests for a name reach, or nil.
func (f *fleet) serving(name string) *member {
	for _, s := range f.served() {
		if s.config.Name == name {
			return s
		}
	}
	return nil
}

// publish lets requests find the services that serve, in their order.
func (f *fleet) publish() {
	var list []*query.Service
	for _, s := range f.served() {
		list = append(list, s.service)
	}
	f.Publish(query.InOrder(list, f.order))
}

// counted returns what the services of a lineage have counted together.
func (f *fleet) counted(s *member, m *overlap.Metrics) overlap.ServiceMetrics {
	sum := s.line.past
	for i, other := range f.members {
		if other != nil && other.line == s.line {
			sum.Add(m.Services[i])
		}
	}
	sum.Name, sum.Down = s.config.Name, m.Services[s.service.ID].Down
	return sum
}
