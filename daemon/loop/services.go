package loop

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// services is all services of the pool, and how they come and go. Everything knows a service by
// its position here. One that changes its model is another service for a while: it loads beside
// the old one and then takes over its name.
type services struct {
	env      *env
	list     []*service         // by ID; nil where a position is free
	specs    []models.Service   // as the scheduler knows them, by ID
	order    []string           // the names of the services, as the configuration has them
	families map[string]*family // the services with variants, by name
	asleep   map[string]*asleep // those whose models are on disk, by name
	reloaded bool               // services came or went since the start
	leaving  int                // services that are retired and not gone

	// What the learners are to do once the event that happened is dealt with: measure nothing
	// more, and choose the predictor again where that is due.
	stop, rebind bool
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

// furnish gives a service its entry, not loaded yet, and memory for its inputs, which variants share.
func (ss *services) furnish(s *service, id models.ServiceID) (err error) {
	name, v := s.config.Of()
	if v != nil && ss.families[name] != nil {
		s.inputs = ss.families[name].inputs
	} else if s.inputs, err = ss.newInputs(); err == nil && v == nil && len(ss.env.options.Devices) > 1 {
		s.moves, err = wire.NewMoveArena(ss.env.config.Worker.IntermediateBytes)
	}
	if err != nil {
		return fmt.Errorf("service %s: memory for inputs: %w", s.config.Name, err)
	}
	if s.entry = ss.newEntry(id, s.config.Name, s.inputs); v != nil {
		if ss.families[name] == nil {
			ss.families[name] = &family{front: ss.newEntry(0, name, s.inputs), inputs: s.inputs}
		}
		s.family, s.variant = ss.families[name], v.Name
		s.family.users++
	}
	setTargets(s.entry, &s.config, s.each)
	return nil
}

// newInputs returns memory for the inputs of a service, which may come to any device.
func (ss *services) newInputs() (*wire.InputArena, error) {
	pinned := slices.ContainsFunc(ss.env.options.Devices, func(d Device) bool { return d.GPU != nil })
	return wire.NewInputArena(ss.env.config.Worker.InputBytes, pinned)
}

// newEntry returns a service as requests find it.
func (ss *services) newEntry(id models.ServiceID, name string, inputs *wire.InputArena) *query.Service {
	s := query.NewService(id, name)
	s.Policy, s.Backend = ss.env.config.Policy, &submitter{env: ss.env, inputs: inputs}
	return s
}

// closeInputs closes the memory for the inputs of a service whose workers are gone, unless
// other variants use it. What somebody has not freed stays mapped until he does.
func (ss *services) closeInputs(s *service) (err error) {
	if of := s.family; of != nil {
		if of.users--; of.users > 0 {
			return nil
		}
		delete(ss.families, of.front.Name)
	}
	for what, arena := range map[string]*wire.InputArena{"inputs": s.inputs, "moving batches": s.moves} {
		if arena == nil {
			continue
		}
		n, failed := arena.Close()
		if err = errors.Join(err, failed); n > 0 {
			err = errors.Join(err, fmt.Errorf("%w: %d %s of service %s", executor.ErrLeak, n, what, s.config.Name))
		}
	}
	return err
}

// setTargets sets what a configuration entry says, within what emulated devices
// know of the model.
func setTargets(s *query.Service, c *config.Service, replicas func(func(*replica) bool)) {
	s.Text, s.Version = c.Text, strconv.Itoa(c.Version)
	s.QoSTarget, s.QueueLimit, s.MaxBatch, s.MaxQueryBatch, s.MaxSeqLen = c.Target, c.QueueLimit, c.MaxBatch, c.MaxQueryBatch, 0
	for r := range replicas {
		p := &r.place
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
func (ss *services) name(id models.ServiceID) string {
	if s := ss.list[id]; s != nil {
		return s.config.Name
	}
	return "(removed)"
}

// settled reports whether every worker on devices of a kind has loaded its model or has failed.
func (ss *services) settled(on *kind) bool {
	return !slices.ContainsFunc(ss.served(), func(s *service) bool {
		return slices.ContainsFunc(on.devices, func(d *device) bool {
			r := s.replicas[d.index]
			return r != nil && r.state == replicaLoading
		})
	})
}

// reserve has a position, which may be the next new one.
func (ss *services) reserve(id models.ServiceID) {
	if int(id) == len(ss.list) {
		ss.list, ss.specs = append(ss.list, nil), append(ss.specs, models.Service{ID: id})
	}
}

// served returns the services that requests find.
func (ss *services) served() (list []*service) {
	for _, s := range ss.list {
		if s != nil && s.state == stateServing {
			list = append(list, s)
		}
	}
	return list
}

// turnedAway tells the listeners how many queries did not come to the scheduler since
// they were last told.
func (ss *services) turnedAway() {
	for _, s := range ss.served() {
		counts, fresh := s.asked().Stats.Counts().TurnedAway, [len(query.TurnedAwayFor)]uint64{}
		if counts == s.line.turnedAway {
			continue
		}
		for i := range counts {
			fresh[i] = counts[i] - s.line.turnedAway[i]
		}
		s.line.turnedAway = counts
		ss.env.emit(observe.Event{Kind: observe.TurnedAway, At: ss.env.now(), Service: &ss.specs[s.entry.ID], Turned: &fresh})
	}
}

// withdraw lets a service that was to join go again. It does nothing to one that
// has.
func (ss *services) withdraw(s *service, cause error) {
	if s.state == stateJoining {
		ss.retire(nil, s)
		s.joining.end(cause)
	}
}

// change gives a service other targets. Queries that were accepted keep theirs.
func (ss *services) change(s *service, c *config.Service, places []Place) error {
	id := s.entry.ID
	m := scheduled(id, c)
	m.Operators, m.Ladder, m.Pipelines = ss.specs[id].Operators, ss.specs[id].Ladder, ss.specs[id].Pipelines
	next := s.entry.Successor()
	setTargets(next, c, newService(c, places, len(ss.env.devices)).each)
	if info := s.info; info != nil {
		if err := next.Loaded(s.entry.Signature().Info); err != nil {
			return err
		}
		if _, err := query.CheckModel(c.Name, info.Inputs, info.Outputs, c.MaxBatch); err != nil {
			return err
		}
	}
	if err := ss.env.step(overlap.Event{Kind: overlap.Change, Definition: m}); err != nil {
		return err
	}
	ss.specs[id], s.config, s.entry = m, *c, next
	ss.env.emit(observe.Event{Kind: observe.Set, Service: &m})
	ss.publish()
	return nil
}

// retire lets services take no further requests. They go when they have answered
// those they have; ended, which is for one, is closed then, unless it is nil. Requests are
// refused by a service only when the registry has none of it any more: they look for another
// one there.
func (ss *services) retire(ended chan struct{}, all ...*service) {
	all = slices.DeleteFunc(all, func(s *service) bool { return s == nil || s.state > stateJoining })
	if len(all) == 0 {
		if ended != nil {
			close(ended)
		}
		return
	}
	for _, s := range all {
		s.state, s.ended = stateRetiring, ended
		ss.varies(s, "")
		ss.leaving++
	}
	ss.reloaded = true
	ss.publish()
	for _, s := range all {
		s.entry.Retired.Store(true)
		if s.family != nil && !s.family.serves() {
			s.family.front.Retired.Store(true)
		}
	}
	ss.env.changed()
	ss.stop = true
}

// reap takes out the services that have nothing left to do.
func (ss *services) reap() {
	for i, s := range ss.list {
		if s != nil && s.state == stateRetiring && !s.inUse() {
			ss.takeOut(models.ServiceID(i), s)
		}
	}
}

func (ss *services) takeOut(id models.ServiceID, s *service) {
	counted := ss.env.scheduler.Metrics().Services[id]
	if ss.env.step(overlap.Event{Kind: overlap.Remove, Service: id}) != nil {
		return // it still has queries
	}
	s.line.past.Add(counted)
	s.state = stateLeaving
	var all []<-chan struct{}
	var errs []error
	for r := range s.each {
		gone, err := ss.env.devices[r.place.Device].exec.Remove(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, gone)
	}
	ss.env.options.Goroutines.Go(func() {
		for _, gone := range all {
			<-gone
		}
		ss.env.mail.tell(func() { ss.left(id, errors.Join(errs...)) })
	})
}

// left frees the position of a service of which no worker is left.
func (ss *services) left(id models.ServiceID, err error) {
	s := ss.list[id]
	if s.ended != nil {
		defer close(s.ended)
	}
	ss.list[id], ss.specs[id] = nil, models.Service{ID: id}
	ss.leaving--
	err = errors.Join(err, ss.env.drop(id), ss.closeInputs(s))
	ss.env.emit(observe.Event{Kind: observe.Dropped, Service: &models.Service{ID: id}})
	if err != nil && !errors.Is(err, executor.ErrClosed) {
		ss.env.log.Error().Err(err).Str("service", s.config.Name).Msg("removing a service failed")
	}
	s.giveBack()
	ss.rebind = true
}

// serving returns the service that requests for a name reach, or nil.
func (ss *services) serving(name string) *service {
	for _, s := range ss.served() {
		if s.config.Name == name {
			return s
		}
	}
	return nil
}

// publish lets requests find the services that serve, in their order.
func (ss *services) publish() {
	served := ss.served()
	for _, of := range ss.families {
		of.gather(served)
	}
	var list []*query.Service
	for _, s := range served {
		if s.family == nil || s.family.variants[0] == s {
			list = append(list, s.asked())
		}
	}
	for _, a := range ss.asleep {
		list = append(list, a.entry)
	}
	ss.env.registry.Publish(query.InOrder(list, ss.order))
}

// counted returns what the services of a lineage have counted together.
func (ss *services) counted(s *service, m *overlap.Metrics) overlap.ServiceMetrics {
	sum := s.line.past
	for i, other := range ss.list {
		if other != nil && other.line == s.line {
			sum.Add(m.Services[i])
		}
	}
	sum.Name, sum.Down = s.config.Name, m.Services[s.entry.ID].Down
	return sum
}

// varies has the scheduler take a service for a variant of a service, or for none.
func (ss *services) varies(s *service, of string) {
	m := ss.specs[s.entry.ID]
	if m.Of == of || s.family == nil {
		return
	}
	m.Of = of
	if err := ss.env.step(overlap.Event{Kind: overlap.Change, Definition: m}); err != nil {
		ss.env.log.Error().Err(err).Str("service", s.config.Name).Msg("scheduling a variant failed")
		return
	}
	ss.specs[s.entry.ID] = m
}

// Select implements [overlap.Selector].
func (ss *services) Select(of string, waiting int, slack time.Duration) (variant string) {
	family := ss.families[of]
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

// takeOver lets a service that has joined answer queries, in the place of the
// one of its name, once all of its workers are ready. It goes on with what that one has
// counted.
func (ss *services) takeOver(s *service) {
	if !s.joined() {
		return
	}
	if !s.joining.held {
		old := ss.serving(s.config.Name)
		ss.enter(s, old)
		ss.retire(nil, old)
		ss.publish()
	}
	s.joining.end(nil)
}

// enter has a service that has joined serve once it is published, where it goes on with what
// the one before it has counted, if there is one.
func (ss *services) enter(s, old *service) {
	s.state = stateServing
	ss.varies(s, scheduled(s.entry.ID, &s.config).Of)
	rested := ss.asleep[s.config.Name]
	ss.env.emit(observe.Event{Kind: observe.Set, Service: &ss.specs[s.entry.ID], Fresh: old == nil && rested == nil})
	if rested != nil {
		ss.wakeUp(rested)
		s.line, s.entry.Stats = rested.line, rested.entry.Stats
	}
	if old != nil {
		old.line.restarts += s.line.restarts
		s.line, s.entry.Stats = old.line, old.entry.Stats
	}
}

// replace has services that have loaded serve in the place of others, in one step.
func (ss *services) replace(joined []*Joining, names []string) error {
	for _, j := range joined {
		if !j.service.joined() {
			return fmt.Errorf("the worker of %s exited before it could serve", j.service.config.Name)
		}
	}
	var old []*service
	for _, name := range names {
		old = append(old, ss.serving(name))
	}
	for _, j := range joined {
		ss.enter(j.service, nil)
	}
	ss.retire(nil, old...)
	ss.publish()
	return nil
}

// routes returns the pipelines that the plan of a service has for a model, none where there
// is no plan or no model is loaded yet.
func (ss *services) routes(of *config.Service, model *wire.Info) ([]models.Pipeline, error) {
	if of.Planned == nil || model == nil {
		return nil, nil
	}
	return of.Planned.Routes(ss.env.names, model.Hash, len(model.Operators))
}

// plan has a service that has just loaded its model go by its plan. Where that is for another
// model its batches stay where they start; a service that is still to join does not.
func (ss *services) plan(s *service) (err error) {
	s.route = route{waits: true}
	if s.route.next, err = ss.routes(&s.config, s.info); err == nil {
		return nil
	}
	if s.route.refused = err; s.state == stateJoining {
		return err
	}
	ss.env.log.Error().Err(err).Str("service", s.config.Name).Msg("plan not followed: batches end on the device on which they start")
	return nil
}

// follow has a service take the pipelines that wait, once the workers are ready that they
// need. Batches that have started keep their own.
func (ss *services) follow(s *service) error {
	missing := func(device int) bool { r := s.replicas[device]; return r == nil || !r.ready() }
	for _, p := range s.route.next {
		for _, stage := range p.Stages {
			if slices.ContainsFunc(stage.Devices, missing) {
				return nil
			}
		}
	}
	spec := ss.specs[s.entry.ID]
	if !s.route.waits || len(spec.Pipelines)+len(s.route.next) == 0 {
		s.route.waits = false
		return nil
	}
	spec.Pipelines = s.route.next
	if err := ss.env.step(overlap.Event{Kind: overlap.Change, Definition: spec}); err != nil {
		return err
	}
	ss.specs[s.entry.ID] = spec
	s.route = route{since: max(ss.env.now(), 1)}
	ss.env.log.Info().Str("service", s.config.Name).Int("pipelines", len(spec.Pipelines)).Msg("plan followed")
	return nil
}
