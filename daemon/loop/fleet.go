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

	families map[string]*family // the services with variants, by name

	shrinking int // workers that go as soon as another one serves

	answerOver func() // answers the queries that are over with a worker

	loading loading
}

// newsLimit is how much progress of a load may wait to be read; what does not fit
// is dropped.
const newsLimit = 64

// Joining is a service on its way to take requests. Ready holds one value in the
// end: nil once the service serves, or why it does not come.
type Joining struct {
	News   chan config.Step
	Ready  chan error
	member *member
	held   bool // it is ready once it has loaded, and serves when Replace says so
}

// end says what has become of the service, in the place of what was said and not heard.
func (j *Joining) end(err error) {
	select {
	case <-j.Ready:
	default:
	}
	j.Ready <- err
}

// scheduled returns a service as the scheduler first sees it. Its operators
// are not known before its worker has loaded the model; until then it is down.
func scheduled(id models.ServiceID, s *config.Service) models.Service {
	m := models.Service{
		ID: id, Name: s.Name, Operators: 1,
		QoSTarget: s.Target, QueueLimit: s.QueueLimit, MaxBatch: s.MaxBatch, BestEffort: s.BestEffort,
	}
	if of, v := s.Of(); v != nil {
		m.Of, m.Accuracy = of, v.Accuracy
	}
	return m
}

// furnish gives a member its service, not loaded yet, and memory for its inputs.
func (f *fleet) furnish(m *member, id models.ServiceID) (err error) {
	if _, v := m.config.Of(); v != nil {
		err = f.joinFamily(m)
	} else {
		m.inputs, err = f.newInputs()
		if err == nil && len(f.Devices) > 1 {
			m.moves, err = wire.NewMoveArena(f.config.Worker.IntermediateBytes)
		}
	}
	if err != nil {
		return fmt.Errorf("service %s: memory for inputs: %w", m.config.Name, err)
	}
	m.service = query.NewService(id, m.config.Name)
	m.service.Policy, m.service.Backend = f.config.Policy, &desk{core: f.core, inputs: m.inputs}
	setTargets(m.service, &m.config, m.each)
	return nil
}

// newInputs returns memory for the inputs of a service, which may come to any device.
func (f *fleet) newInputs() (*wire.InputArena, error) {
	pinned := slices.ContainsFunc(f.Devices, func(d Device) bool { return d.GPU != nil })
	return wire.NewInputArena(f.config.Worker.InputBytes, pinned)
}

// joinFamily gives a member that is a variant what it shares with the others.
func (f *fleet) joinFamily(m *member) error {
	name, v := m.config.Of()
	of := f.families[name]
	if of == nil {
		inputs, err := f.newInputs()
		if err != nil {
			return err
		}
		of = &family{front: query.NewService(0, name), inputs: inputs}
		of.front.Policy, of.front.Backend = f.config.Policy, &desk{core: f.core, inputs: inputs}
		f.families[name] = of
	}
	m.family, m.inputs, m.variant = of, of.inputs, v.Name
	of.users++
	return nil
}

// quit ends a member's part in its family, and reports whether it was the last.
func (f *fleet) quit(m *member) (last bool) {
	if m.family.users--; m.family.users > 0 {
		return false
	}
	delete(f.families, m.family.front.Name)
	return true
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
		counts, fresh := s.asked().Stats.Counts().TurnedAway, [len(query.TurnedAwayFor)]uint64{}
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
		return fmt.Errorf("there are %d services, including their replacements, which is the limit: remove others first", predictor.MaxServices)
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
	m.Of = "" // until it serves
	if err := f.step(overlap.Event{Kind: overlap.Add, Definition: m}); err != nil {
		return errors.Join(err, f.closeInputs(s))
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
			return errors.Join(err, f.step(overlap.Event{Kind: overlap.Remove, Service: id}), f.drop(id), f.closeInputs(s))
		}
	}
	f.members[id], f.specs[id], f.reloaded = s, m, true
	return nil
}

// hire starts a worker of a service. Its model is cut as those of the others are.
func (f *fleet) hire(s *member, r *replica) error {
	r.Worker.ID, r.Worker.Inputs, r.Worker.Moves = s.service.ID, s.inputs, s.moves
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
				f.Log.Error().Err(err).Str("service", s.config.Name).Str("device", f.devices[r.Device].Name).Msg("starting a worker failed")
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
		f.retire(nil, s)
		s.joining.end(cause)
	}
}

// change gives a service other targets. Queries that were accepted keep theirs.
func (f *fleet) change(s *member, c *config.Service, places []Place) error {
	id := s.service.ID
	m := scheduled(id, c)
	m.Operators, m.Ladder, m.Pipelines = f.specs[id].Operators, f.specs[id].Ladder, f.specs[id].Pipelines
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
	if err := f.step(overlap.Event{Kind: overlap.Change, Definition: m}); err != nil {
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
			if !slices.ContainsFunc(s.replicas, func(o *replica) bool { return o != nil && o.ready && !o.leaves }) || f.devices[r.Device].taken || !s.flushed(f.Now()) {
				f.shrinking++
				continue
			}
			f.withdrawFrom(models.ServiceID(id), s, r)
		}
	}
}

// withdrawFrom takes the worker of a service off a device.
func (f *fleet) withdrawFrom(id models.ServiceID, s *member, r *replica) {
	_ = f.step(overlap.Event{Kind: overlap.Down, Service: id, Device: r.Device})
	s.replicas[r.Device] = nil
	s.show()
	f.changed()
	gone, err := f.devices[r.Device].exec.Remove(id)
	if err != nil {
		f.Log.Error().Err(err).Str("service", s.config.Name).Msg("removing a worker from a device failed")
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
			_ = f.step(overlap.Event{Kind: overlap.Down, Service: models.ServiceID(id), Device: d.index})
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
		_ = f.step(overlap.Event{Kind: overlap.Up, Service: id, Device: d.index})
	}
}

// retire lets services take no further requests. They go when they have answered
// those they have; ended, which is for one, is closed then, unless it is nil. Requests are
// refused by a service only when the registry has none of it any more: they look for another
// one there.
func (f *fleet) retire(ended chan struct{}, all ...*member) {
	all = slices.DeleteFunc(all, func(s *member) bool { return s == nil || s.state > stateJoining })
	if len(all) == 0 {
		if ended != nil {
			close(ended)
		}
		return
	}
	for _, s := range all {
		s.state, s.ended = stateRetiring, ended
		f.varies(s, "")
		f.leaving++
	}
	f.reloaded = true
	f.publish()
	for _, s := range all {
		s.service.Retired.Store(true)
		if s.family != nil && !s.family.serves() {
			s.family.front.Retired.Store(true)
		}
	}
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
		if s != nil && s.state == stateRetiring && !s.inUse() {
			f.takeOut(models.ServiceID(i), s)
		}
	}
}

func (f *fleet) takeOut(id models.ServiceID, s *member) {
	counted := f.scheduler.Metrics().Services[id]
	if f.step(overlap.Event{Kind: overlap.Remove, Service: id}) != nil {
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
	err = errors.Join(err, f.drop(id), f.closeInputs(s))
	f.emit(observe.Event{Kind: observe.Dropped, Service: &models.Service{ID: id}})
	if err != nil && !errors.Is(err, executor.ErrClosed) {
		f.Log.Error().Err(err).Str("service", s.config.Name).Msg("removing a service failed")
	}
	s.giveBack()
	f.rebind()
}

// closeInputs gives up the memory for the inputs of a service whose workers are gone, unless
// other variants have it. What somebody has not given back stays mapped until he does.
func (f *fleet) closeInputs(s *member) error {
	if s.family != nil && !f.quit(s) {
		return nil
	}
	n, err := s.inputs.Close()
	if n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d inputs of service %s", executor.ErrLeak, n, s.config.Name))
	}
	if s.moves == nil {
		return err
	}
	n, merr := s.moves.Close()
	if n > 0 {
		merr = errors.Join(merr, fmt.Errorf("%w: %d moving batches of service %s", executor.ErrLeak, n, s.config.Name))
	}
	return errors.Join(err, merr)
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
	served := f.served()
	for _, of := range f.families {
		of.gather(served)
	}
	var list []*query.Service
	for _, s := range served {
		if s.family == nil || s.family.variants[0] == s {
			list = append(list, s.asked())
		}
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

// varies has the scheduler take a member for a variant of a service, or for none.
func (f *fleet) varies(s *member, of string) {
	m := f.specs[s.service.ID]
	if m.Of == of || s.family == nil {
		return
	}
	m.Of = of
	if err := f.step(overlap.Event{Kind: overlap.Change, Definition: m}); err != nil {
		f.Log.Error().Err(err).Str("service", s.config.Name).Msg("scheduling a variant failed")
		return
	}
	f.specs[s.service.ID] = m
}

// Select implements [overlap.Selector].
func (f *fleet) Select(of string, waiting int, slack time.Duration) (variant string) {
	family := f.families[of]
	if family == nil {
		return ""
	}
	name := family.live.Choose(waiting, slack)
	for _, m := range family.variants {
		if m.variant == name {
			return m.config.Name
		}
	}
	return ""
}
