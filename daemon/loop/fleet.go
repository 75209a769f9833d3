package loop

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
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
	order    []string         // the names of the services, as the configuration has them
	reloaded bool             // services came or went since the start
	leaving  int              // services that are retired and not gone

	noWorkers error // why there are no workers any more, nil if there may be

	// What the fleet has others do: answer the queries that are over with a worker,
	// and choose the predictor anew, or stop measuring, as services come and go.
	answerOver    func()
	rebind        func()
	measuring     func() bool
	stopMeasuring func()

	late    []*executor.Event // came while a round of their service runs
	loading loading
}

// member is a service of the fleet with its worker. Its position is the ID by which
// scheduler, executor and predictor know it; a position that is free holds nil. A
// member belongs to the scheduler goroutine.
type member struct {
	service *query.Service
	inputs  *wire.InputArena // of its queries, which all of its workers read
	config  config.Service
	place   Place

	// What is known of its worker.
	info    *wire.Info // what the last one learned of the model, nil before
	fresh   bool       // it became ready after the last round of the service was sent
	started bool       // once at least
	fault   error      // why it was given up, nil if that is not known

	overrunLogged time.Duration // when the log last had a line about overruns of the service, 0 for never

	state   memberState
	joining *Joining      // while it joins
	ended   chan struct{} // closed when a service that was retired is gone, nil if nobody waits

	line *lineage // never nil
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
	lost   int // workers so far
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
	setTargets(m.service, &m.config, &m.place)
	return nil
}

// setTargets sets what a configuration entry says, within what an emulated device
// knows of the model.
func setTargets(s *query.Service, c *config.Service, p *Place) {
	s.QoSTarget, s.QueueLimit, s.MaxBatch, s.MaxQueryBatch = c.Target, c.QueueLimit, c.MaxBatch, c.MaxQueryBatch
	if p.Model != "" {
		s.MaxQueryBatch, s.MaxSeqLen = min(s.MaxQueryBatch, p.MaxBatch), p.MaxSeqLen
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

// settled reports whether every worker has loaded its model or was given up.
func (f *fleet) settled() bool {
	return !slices.ContainsFunc(f.served(), func(s *member) bool { return s.info == nil && !s.service.GivenUp.Load() })
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
func (f *fleet) open(s *member, spec executor.ServiceSpec) error {
	id := models.ServiceID(len(f.members))
	if at := slices.Index(f.members, nil); at >= 0 {
		id = models.ServiceID(at)
	}
	switch {
	case id >= predictor.MaxServices:
		return fmt.Errorf("there are %d services and their replacements: take others away first", predictor.MaxServices)
	case f.noWorkers != nil:
		return f.noWorkers
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
	if err := f.predictor.Reset(id, m.Operators); err != nil {
		return errors.Join(err, f.scheduler.Remove(f.Now(), id), s.closeInputs())
	}
	spec.ID, spec.Inputs = id, s.inputs
	if err := f.exec.Add(spec); err != nil {
		return errors.Join(err, f.scheduler.Remove(f.Now(), id), f.predictor.Drop(id), s.closeInputs())
	}
	f.members[id], f.specs[id], f.reloaded = s, m, true
	return nil
}

// heard takes in what happens to the worker of a service that joins.
func (f *fleet) heard(s *member, e *executor.Event) {
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
		s.joining.Ready <- cause
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
		old.line.restarts += s.line.restarts
		s.line, s.service.Stats = old.line, old.service.Stats
		f.retire(old, nil)
	}
	f.publish()
	s.joining.Ready <- nil
}

// change gives a service other targets. Queries that were accepted keep theirs.
func (f *fleet) change(s *member, c *config.Service, p Place) error {
	id := s.service.ID
	m := scheduled(id, c)
	m.Operators = f.specs[id].Operators
	next := s.service.Successor()
	setTargets(next, c, &p)
	if info := s.info; info != nil {
		if err := next.Loaded(f.infoOf(info)); err != nil {
			return err
		}
		if err := query.CheckModel(c.Name, info.Inputs, info.Outputs, c.MaxBatch); err != nil {
			return err
		}
	}
	if err := f.scheduler.Change(f.Now(), m); err != nil {
		return err
	}
	p.GiveBack = s.place.GiveBack
	f.specs[id], s.config, s.service, s.place = m, *c, next, p
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
	s.service.Retired.Store(true)
	f.stopMeasuring()
	f.learning.Changed()
}

// reap takes out the services that have nothing left to do.
func (f *fleet) reap() {
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
	gone, err := f.exec.Remove(id)
	if err != nil {
		f.left(id, err)
		return
	}
	f.Goroutines.Go(func() {
		<-gone
		f.tell(message{ask: func() { f.left(id, nil) }})
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
	err = errors.Join(err, f.predictor.Drop(id), s.closeInputs())
	f.emit(observe.Event{Kind: observe.Dropped, Service: &models.Service{ID: id}})
	if err != nil && !errors.Is(err, executor.ErrClosed) {
		f.Log.Error().Err(err).Str("service", s.config.Name).Msg("taking a service away")
	}
	s.place.GiveBack()
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

// loseWorkers gives up every service, those too that come later, for a reason that
// is no service's own. With a nil error there may be workers again.
func (f *fleet) loseWorkers(err error) {
	f.noWorkers = err
	for i, s := range f.members {
		if s != nil && err != nil {
			f.happened(&executor.Event{Kind: executor.WorkerFailed, Service: models.ServiceID(i), Err: err})
		}
	}
}

// happened takes in what happened to a worker. The outcome of a span that
// was lost with it may come before or after.
func (f *fleet) happened(e *executor.Event) {
	f.loading.heard(e, time.Now())
	if s := f.members[e.Service]; s != nil && s.state != stateLeaving {
		f.fares(s, e)
	}
	log := f.Log
	if f.config.Emulated() {
		log = log.With().Str("device", f.Device).Logger()
	}
	logEvent(log, f.name(e.Service), e)
}

func (f *fleet) fares(s *member, e *executor.Event) {
	switch e.Kind {
	case executor.WorkerStarting:
		if s.started {
			s.line.restarts++
		}
		s.started = true
	case executor.WorkerReady:
		f.up(e)
	case executor.WorkerLost:
		f.down(e.Service)
	case executor.WorkerFailed:
		f.down(e.Service)
		s.fault = e.Err
		s.service.RetryAt.Store(0)
		if e.RestartIn > 0 {
			s.service.RetryAt.Store(time.Now().Add(e.RestartIn).UnixNano())
		}
		f.giveUp(e.Service)
	case executor.WorkerStopped:
		f.down(e.Service)
	}
	if s.state == stateJoining {
		f.heard(s, e)
	}
}

// lost is called when a span is lost. That is known before the event that its
// worker is, unless the next worker is ready already.
func (f *fleet) lost(id models.ServiceID) {
	if !f.members[id].fresh {
		f.down(id)
	}
}

func (f *fleet) down(id models.ServiceID) {
	s := f.members[id]
	s.fresh = false
	s.service.SetReady(false)
	f.scheduler.Down(f.Now(), id, 0)
	f.answerOver()
}

// giveUp expects no worker of a service soon. The others go on without it.
func (f *fleet) giveUp(id models.ServiceID) {
	s := f.members[id]
	s.service.GivenUp.Store(true)
	f.learning.GaveUp()
	f.rebind()
}

func (f *fleet) up(e *executor.Event) {
	member := f.members[e.Service]
	s := member.service
	f.keepCut(member, e.Info)
	if fault := e.Info.WarmFault; fault != "" && f.warmed(member) {
		f.refuse(e.Service, fmt.Errorf("its model fails on the zeros that it is warmed up with, which the one before did not: %s", fault))
		return
	}
	if err := s.Loaded(f.infoOf(e.Info)); err != nil {
		f.Log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be served")
		f.refuse(e.Service, err)
		return
	}
	spec := f.specs[e.Service]
	spec.Operators, spec.MaxBatch = len(e.Info.Operators), s.MaxBatch
	if !s.Mergeable() {
		spec.MaxBatch = 1
	}
	switch err := f.load(spec, e); {
	case errors.Is(err, overlap.ErrServiceBusy):
		f.late = append(f.late, e)
		return
	case err != nil:
		f.Log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be scheduled")
		f.refuse(e.Service, err)
		return
	}
	member.fresh = true
	f.learning.Cold(e.Service)
	f.scheduler.Up(f.Now(), e.Service, 0)
	s.GivenUp.Store(false)
	s.SetReady(true)
	f.takeOver(member)
	f.rebind()
}

// warmed reports whether a service joins in the place of one whose model ran when it
// was warmed up.
func (f *fleet) warmed(s *member) bool {
	old := f.serving(s.config.Name)
	return s.state == stateJoining && old != nil && old.info != nil && old.info.WarmFault == ""
}

// infoOf returns what requests are checked against.
func (f *fleet) infoOf(i *wire.Info) query.Info {
	info := query.Info{
		Inputs:    i.Inputs,
		Outputs:   i.Outputs,
		Operators: len(i.Operators),
		Hash:      i.Hash,
		Platform:  query.OnnxPlatform,
		Device:    f.Device,
		Versions:  map[string]string{"onnxruntime": i.ORTVersion},
	}
	if f.config.Emulated() {
		info.Platform, info.Versions = config.DeviceEmulated, nil
	}
	if i.Cut != nil {
		info.Cut = i.Cut.Reason
	}
	return info
}

// refuse gives up a service whose worker has loaded a model that cannot be
// served.
func (f *fleet) refuse(id models.ServiceID, err error) {
	f.members[id].fault = err
	f.members[id].service.RetryAt.Store(0)
	f.withdraw(f.members[id], err)
	f.giveUp(id)
}

// catchUp takes in the workers that came back with another model while a
// round with a span of the lost one was still running.
func (f *fleet) catchUp() {
	late := f.late
	f.late = nil
	for _, e := range late {
		if state, err := f.exec.State(e.Service); err == nil && state.PID == e.PID {
			f.up(e)
		}
	}
}

// load gives scheduler and predictor what the worker learned of the model. A
// worker that comes back with the same model changes nothing.
func (f *fleet) load(spec models.Service, e *executor.Event) error {
	member := f.members[spec.ID]
	if member.info != nil && f.specs[spec.ID] == spec && member.info.Hash == e.Info.Hash {
		return nil
	}
	if err := f.scheduler.Load(f.Now(), spec); err != nil {
		return err
	}
	if err := f.predictor.Reset(spec.ID, spec.Operators); err != nil {
		return err
	}
	f.specs[spec.ID], member.info = spec, e.Info
	f.learning.Changed()
	if f.Profiles != nil {
		var p predictor.Snapshot
		if f.Profiles.Stored(SoloProfiles, f.profileKey(member.place.Share, e.Info), &p) && f.solo.Restore(spec.ID, p) == nil {
			f.Log.Debug().Str("service", spec.Name).Int("cells", len(p.Cells)).Msg("the stored profile is taken")
		}
	}
	for _, t := range e.Info.Solo {
		if f.slower(spec, t) {
			continue
		}
		if err := f.solo.SetOperators(spec.ID, t.Size, t.SeqLen, t.Nanos); err != nil {
			return err
		}
	}
	return nil
}

// profileKey names what the operator times of a model hold for.
func (c *core) profileKey(share string, i *wire.Info) string {
	return fmt.Sprintf("%s|%s|ort %s|%d operators|%s", c.Device, i.Hash, i.ORTVersion, len(i.Operators), share)
}

// slower reports whether warming up took longer than what is known already. A
// machine that is busy while models load must not spoil a profile that is good,
// and a profile from a busy time must not outlive it.
func (f *fleet) slower(spec models.Service, t wire.Solo) bool {
	known, ok := f.solo.Span(models.Span{Service: spec.ID, End: spec.Operators, Size: t.Size, SeqLen: t.SeqLen})
	var took time.Duration
	for _, n := range t.Nanos {
		took += time.Duration(n)
	}
	return ok && took > known
}

// keepCut logs a choice that a worker has made, and has it stored.
func (f *fleet) keepCut(member *member, info *wire.Info) {
	c := info.Cut
	if c == nil {
		return
	}
	if before := member.info; before != nil && before.Cut != nil && before.Cut.Reason == c.Reason && before.Hash == info.Hash {
		return
	}
	f.Log.Info().Str("service", member.config.Name).Int("operators", len(info.Operators)).Str("why", c.Reason).Msg("model is cut")
	if c.Measured() && f.Profiles != nil {
		f.Profiles.ChoseCut(member.config, member.place.Share, c)
	}
}

// logEvent writes what happened to the worker of a service.
func logEvent(log zerolog.Logger, service string, e *executor.Event) {
	log = log.With().Str("service", service).Logger()
	switch e.Kind {
	case executor.WorkerStarting:
		log.Info().Int("pid", e.PID).Msg("worker starts")
	case executor.WorkerProgress:
		log.Debug().Str("phase", e.Phase).Int64("done", e.Done).Int64("total", e.Total).Msg("worker loads")
	case executor.WorkerReady:
		if e.PID == 0 {
			log.Info().Int("operators", len(e.Info.Operators)).Msg("model is emulated")
			return
		}
		log.Info().Int("pid", e.PID).Int("operators", len(e.Info.Operators)).Bool("cached", e.Info.CacheHit).Dur("took", e.Took.Round(time.Millisecond)).Msg("worker is ready")
	case executor.WorkerOutput:
		log.Warn().Str("line", e.Line).Msg("worker says")
	case executor.WorkerLost:
		log.Error().Err(e.Err).Int("pid", e.PID).Int("batches", len(e.Batches)).Dur("restart_in", e.RestartIn.Round(time.Millisecond)).Msg("worker is lost")
	case executor.WorkerFailed:
		if e.RestartIn > 0 {
			log = log.With().Dur("retry_in", e.RestartIn).Logger()
		}
		log.Error().Err(e.Err).Msg("service is given up: mend what is wrong, and try again with overlapd restart")
	case executor.WorkerStopped:
		if e.PID != 0 {
			log.Info().Int("pid", e.PID).Msg("worker stopped")
		}
	}
}

// loading is how far the workers have come that load their models. They do so
// on threads of low priority beside what is served, but a group that is measured
// meanwhile would be measured too slow.
type loading map[models.ServiceID]load

type load struct {
	began       time.Time
	phase       string
	done, total int64
}

// heard takes in what happened to a worker.
func (g loading) heard(e *executor.Event, now time.Time) {
	switch e.Kind {
	case executor.WorkerProgress:
		began := now
		if before, ok := g[e.Service]; ok {
			began = before.began
		}
		g[e.Service] = load{began, e.Phase, e.Done, e.Total}
	case executor.WorkerReady, executor.WorkerLost, executor.WorkerStopped:
		delete(g, e.Service)
	}
}

// active reports whether any worker loads.
func (g loading) active() bool { return len(g) > 0 }

// status returns the workers that load, by service.
func (g loading) status(name func(models.ServiceID) string, now time.Time) (list []status.Loading) {
	for _, id := range slices.Sorted(maps.Keys(g)) {
		l := g[id]
		list = append(list, status.Loading{Service: name(id), Phase: l.phase, Done: l.done, Total: l.total, LoadSeconds: now.Sub(l.began).Seconds()})
	}
	return list
}
