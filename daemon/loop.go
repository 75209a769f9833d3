package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// inboxBurst is how many messages are taken in before the next round is
// chosen: events are queued, decisions are made in rounds.
const inboxBurst = 256

// errModelChanged is why a batch failed that ran into another model.
var errModelChanged = errors.New("its model has just changed")

// scheduler is what the loop drives: an [overlap.Scheduler], or the one of
// package journal that records it.
type scheduler interface {
	Arrive(now time.Duration, q models.Query) error
	Cancel(now time.Duration, id models.QueryID) (stop models.BatchID, running bool)
	Next(now time.Duration) (overlap.Round, bool)
	Plan(now time.Duration)
	Finish(now time.Duration, o models.Outcome) error
	Wake() (at time.Duration, ok bool)
	Idle() bool
	Drain(now time.Duration)
	Answers() []overlap.Answer
	Released() []overlap.Release
	Members(id models.BatchID) []models.QueryID

	Down(now time.Duration, id models.ServiceID)
	Up(now time.Duration, id models.ServiceID)
	Load(now time.Duration, m models.Service) error
	Add(now time.Duration, m models.Service) error
	Change(now time.Duration, m models.Service) error
	Remove(now time.Duration, id models.ServiceID) error

	Explain() overlap.Explanation
	Metrics() overlap.Metrics
	Waiting(to []overlap.Waiting) []overlap.Waiting
}

// loop is the state of the scheduler goroutine. Nothing else touches it.
type loop struct {
	*backend
	config    config.Config
	scheduler scheduler
	solo      *predictor.Solo
	predictor *predictor.Predictor // of groups; it has solo

	learning    *learning.Learner
	measurement measurement
	fitter      FitFunc            // nil if no predictor is to be fitted
	endFit      context.CancelFunc // ends the fit that was begun last, nil if none was
	loading     loading

	slots    []*slot          // by service ID
	specs    []models.Service // as the scheduler knows them, by ID
	order    []string         // of the services, as the configuration has them
	reloaded bool             // services came or went since the start
	leaving  int              // services that are retired and not gone

	withoutMPS error // why there are no workers any more, nil if there may be

	late      []executor.WorkerReady      // came while a round of their service runs
	calls     map[models.QueryID]*pending // accepted and not answered
	listeners []observe.Listener
	timer     *time.Timer
	requests  []executor.SpanRequest // memory of dispatch
	outcome   models.Outcome         // memory of finish
	event     observe.Event          // memory of emit
	round     overlap.Round          // memory of dispatch
	why       overlap.Explanation
	ran       executor.Outcome // memory of finish
	group     models.Group     // memory of learn
}

// run takes events in and gives rounds out until the executor is closed.
func (l *loop) run() {
	defer close(l.done)
	defer l.abandon()
	defer l.timer.Stop()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	outcomes := l.exec.Outcomes()
	for {
		select {
		case m := <-l.inbox:
			l.emit(observe.Event{Kind: observe.Woke})
			l.take(m)
		case o, ok := <-outcomes:
			if !ok {
				return
			}
			l.emit(observe.Event{Kind: observe.Woke})
			l.finish(o)
		case <-l.timer.C:
			l.emit(observe.Event{Kind: observe.Woke})
		case <-beat.C:
			l.emit(observe.Event{Kind: observe.Woke})
		}
		for range inboxBurst {
			select {
			case m := <-l.inbox:
				l.take(m)
				continue
			default:
			}
			break
		}
		l.decide()
		l.board.Publish(l.status)
		l.rest()
	}
}

// rest shows that the loop is alive and has nothing more to do.
func (l *loop) rest() {
	l.beat.Store(int64(l.now()))
	l.emit(observe.Event{Kind: observe.Rested})
}

// emit tells the listeners what happens. The event is in memory of the loop, so
// that nothing is allocated for it.
func (l *loop) emit(e observe.Event) {
	e.At = l.now()
	l.event = e
	for _, x := range l.listeners {
		x.Observe(&l.event)
	}
}

// soloOf returns what the spans of a round take one after another, or 0 if that
// is not known, or there is just one.
func (l *loop) soloOf(r *overlap.Round) (sum time.Duration) {
	if len(r.Group.Spans) == 1 {
		return 0
	}
	for _, span := range r.Group.Spans {
		took, ok := l.solo.Span(span)
		if !ok {
			return 0
		}
		sum += took
	}
	return sum
}

// take handles one message.
func (l *loop) take(m message) {
	switch {
	case m.call != nil:
		l.arrive(m.call)
	case m.cancel != 0:
		l.cancel(m.cancel)
	case m.event != nil:
		l.workerEvent(m.event)
	case m.drain:
		l.scheduler.Drain(l.now())
	case m.giveUp:
		l.answerRest()
	case m.ask != nil:
		m.ask(l)
	}
}

func (l *loop) arrive(c *query.Call) {
	if l.slots[c.Service.ID].worker.givenUp {
		c.Answer(query.Reply{Err: errGivenUp(c.Service)})
		return
	}
	q := models.Query{
		ID:       c.QueryID,
		Service:  c.Service.ID,
		Size:     c.Size,
		SeqLen:   c.SeqLen,
		Shape:    c.Shape,
		Arrival:  c.Arrival.Sub(l.epoch),
		Deadline: c.Deadline().Sub(l.epoch),
		Priority: c.Priority,
	}
	if err := l.scheduler.Arrive(l.now(), q); err != nil {
		l.emit(observe.Event{Kind: observe.Refused, Call: c, Err: err})
		c.Answer(query.Reply{Err: refusal(err)})
		return
	}
	l.calls[q.ID] = c.Backend.(*pending)
	l.learning.Arrived(q.Arrival)
	l.emit(observe.Event{Kind: observe.Accepted, Call: c})
}

func (l *loop) cancel(id models.QueryID) {
	p := l.calls[id]
	if p == nil {
		return
	}
	if stop, _ := l.scheduler.Cancel(l.now(), id); stop != 0 {
		l.exec.Stop(p.call.Service.ID, stop)
	}
}

// decide answers what is over, chooses the next round if the device is free,
// and sets the timer for what happens by the passing of time alone.
func (l *loop) decide() {
	l.reap()
	for !l.measurement.active() {
		round, ok := l.scheduler.Next(l.now())
		l.answerAll()
		if !ok {
			break
		}
		l.dispatch(round)
	}
	l.scheduler.Plan(l.now())
	next, wake := l.scheduler.Wake()
	idle := l.scheduler.Idle()
	switch {
	case l.measurement.active():
		if !idle || l.loading.active() {
			l.measurement.stop()
		}
		wake = false // whatever waits, waits for the outcome
	case idle && l.learning.Pending():
		next, wake = l.measure(), true
	}
	if wake {
		l.timer.Reset(max(next-l.now(), 0))
	}
}

// dispatch sends a round to the workers. A round that cannot be sent fails at
// once, so that its queries are answered.
func (l *loop) dispatch(next overlap.Round) {
	l.round = next
	r := &l.round
	l.requests = l.requests[:0]
	for i, span := range r.Group.Spans {
		l.slots[span.Service].worker.fresh = false
		request := executor.SpanRequest{Span: span}
		if span.Start == 0 {
			for _, id := range r.Queries(i) {
				request.Queries = append(request.Queries, executor.QueryTensors{ID: id, Inputs: l.calls[id].tensors})
			}
		}
		l.requests = append(l.requests, request)
	}
	l.why = l.scheduler.Explain()
	l.emit(observe.Event{Kind: observe.Dispatched, Round: r, Why: &l.why, Solo: l.soloOf(r), Services: l.specs})
	if err := l.exec.Run(r.Number, l.requests); err != nil {
		l.log.Error().Err(err).Uint64("round", r.Number).Msg("sending a round to the workers")
		o := models.Outcome{Round: r.Number}
		for i, span := range r.Group.Spans {
			l.blame(r.Queries(i), err)
			o.Spans = append(o.Spans, models.SpanOutcome{Span: span, Status: models.SpanFailed})
		}
		l.settle(&o, nil)
	}
}

// blame notes why the batch of these queries failed.
func (l *loop) blame(queries []models.QueryID, err error) {
	for _, id := range queries {
		if p := l.calls[id]; p != nil {
			p.failure = err
		}
	}
}

// finish takes in what became of a round.
func (l *loop) finish(o executor.Outcome) {
	if o.Round >= measuringIDs {
		l.finishMeasured(&o)
		return
	}
	l.ran = o
	l.outcome.Round, l.outcome.Took, l.outcome.Spans = o.Round, o.Took, l.outcome.Spans[:0]
	for i := range o.Spans {
		l.outcome.Spans = append(l.outcome.Spans, l.spanOutcome(&o.Spans[i]))
	}
	l.learn(&o)
	l.settle(&l.outcome, &l.ran)
	l.catchUp()
}

// spanOutcome returns what the scheduler is told of a span, after the loop has
// taken in the rest.
func (l *loop) spanOutcome(s *executor.SpanOutcome) models.SpanOutcome {
	out := s.SpanOutcome
	switch s.Status {
	case models.SpanDone:
		if !s.Finished && s.Reached == l.specs[s.Span.Service].Operators {
			// The worker came back with another model, which is not known yet.
			out.Status = models.SpanFailed
			l.blame(l.scheduler.Members(s.Span.Batch), errModelChanged)
		}
	case models.SpanLost:
		l.lost(s.Span.Service)
	case models.SpanFailed:
		l.blame(l.scheduler.Members(s.Span.Batch), s.Err)
	}
	if s.Status == models.SpanDone || s.Status == models.SpanStopped {
		l.slots[s.Span.Service].service.Stats.Ran(s.Took, s.DeviceTook)
	}
	if s.Finished {
		l.slots[s.Span.Service].service.Stats.Executed()
	}
	for i := range s.Queries {
		if p := l.calls[s.Queries[i].ID]; p != nil {
			p.outputs = s.Queries[i]
		} else {
			s.Queries[i].Release()
		}
	}
	return out
}

// learn lets the predictor follow what was measured of a group.
func (l *loop) learn(o *executor.Outcome) {
	l.group.Spans = l.group.Spans[:0]
	for i := range o.Spans {
		if o.Spans[i].Status != models.SpanDone {
			return
		}
		l.group.Spans = append(l.group.Spans, o.Spans[i].Span)
	}
	if err := l.predictor.Observe(l.group, o.Latency()); err != nil {
		l.log.Debug().Err(err).Msg("a measured time was not taken in")
	}
}

// settle tells the scheduler how a round went, and the workers what they need
// not keep any more. Nothing was measured of a round that could not be sent.
func (l *loop) settle(o *models.Outcome, measured *executor.Outcome) {
	now := l.now()
	l.emit(observe.Event{Kind: observe.Ended, Outcome: o, Measured: measured})
	if err := l.scheduler.Finish(now, *o); err != nil {
		l.log.Error().Err(err).Uint64("round", o.Round).Msg("finishing a round")
	}
	l.answerAll()
}

// answerAll answers the queries that are over and frees what they held.
func (l *loop) answerAll() {
	for _, r := range l.scheduler.Released() {
		l.exec.Release(r.Service, r.Batch)
	}
	answers := l.scheduler.Answers()
	for i := range answers {
		a := &answers[i]
		p, slot := l.calls[a.Query], l.slots[a.Service]
		e := observe.Event{Kind: observe.Answered, Answer: a, Series: slot.series, Target: slot.config.Target}
		if p != nil {
			e.Call = p.call
		}
		l.emit(e)
		if p != nil {
			delete(l.calls, a.Query)
			p.call.Answer(l.reply(p, a))
		}
	}
}

// workerEvent takes in what happened to a worker. The outcome of a span that
// was lost with it may come before or after.
func (l *loop) workerEvent(e executor.Event) {
	l.loading.heard(e, time.Now())
	if s := l.slots[serviceOf(e)]; s != nil && s.state != slotLeaving {
		l.workerFares(s, e)
	}
	log := l.log
	if l.emulation != nil {
		log = log.With().Str("device", l.device).Logger()
	}
	logEvent(log, l.name, e)
}

func (l *loop) workerFares(s *slot, e executor.Event) {
	switch e := e.(type) {
	case executor.WorkerStarting:
		s.starts++
	case executor.WorkerReady:
		l.up(e)
	case executor.WorkerLost:
		l.down(e.Service)
	case executor.WorkerFailed:
		l.down(e.Service)
		s.worker.fault = e.Err
		l.giveUp(e.Service)
	case executor.WorkerStopped:
		l.down(e.Service)
	}
	if s.state == slotJoining {
		l.heard(s, e)
	}
}

// lost is called when a span is lost. That is known before the event that its
// worker is, unless the next worker is ready already.
func (l *loop) lost(id models.ServiceID) {
	if !l.slots[id].worker.fresh {
		l.down(id)
	}
}

func (l *loop) down(id models.ServiceID) {
	s := l.slots[id]
	s.worker.fresh = false
	s.service.SetReady(false)
	l.scheduler.Down(l.now(), id)
	l.answerAll()
}

// giveUp expects no worker of a service any more. The others go on without it.
func (l *loop) giveUp(id models.ServiceID) {
	s := l.slots[id]
	s.worker.givenUp = true
	s.service.SetGivenUp(true)
	l.learning.GaveUp()
	l.bindPredictor()
}

func (l *loop) up(e executor.WorkerReady) {
	slot := l.slots[e.Service]
	s := slot.service
	l.noteCut(slot, &e.Info)
	if err := s.Loaded(l.infoOf(&e.Info)); err != nil {
		l.log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be served")
		l.refuse(e.Service, err)
		return
	}
	spec := l.specs[e.Service]
	spec.Operators, spec.MaxBatch = len(e.Info.Operators), s.MaxBatch
	if !s.Batched() {
		spec.MaxBatch = 1
	}
	switch err := l.load(spec, &e); {
	case errors.Is(err, overlap.ErrServiceBusy):
		l.late = append(l.late, e)
		return
	case err != nil:
		l.log.Error().Err(err).Str("service", s.Name).Msg("the model cannot be scheduled")
		l.refuse(e.Service, err)
		return
	}
	slot.worker.fresh, slot.worker.givenUp = true, false
	l.learning.Cold(e.Service)
	l.scheduler.Up(l.now(), e.Service)
	s.SetGivenUp(false)
	s.SetReady(true)
	l.takeOver(slot)
	l.bindPredictor()
}

// infoOf returns what requests are checked against.
func (l *loop) infoOf(i *wire.Info) query.Info {
	info := query.Info{
		Inputs:    i.Inputs,
		Outputs:   i.Outputs,
		Operators: len(i.Operators),
		Hash:      i.Hash,
		Platform:  query.OnnxPlatform,
		Device:    l.device,
		Versions:  map[string]string{"onnxruntime": i.ORTVersion},
	}
	if l.emulation != nil {
		info.Platform, info.Versions = config.DeviceEmulated, nil
	}
	if i.Cut != nil {
		info.Cut = i.Cut.Reason
	}
	return info
}

// refuse gives up a service whose worker has loaded a model that cannot be
// served.
func (l *loop) refuse(id models.ServiceID, err error) {
	l.slots[id].worker.fault = err
	l.withdraw(l.slots[id], err)
	l.giveUp(id)
}

// sent is told of a span that is measured.
func (l *loop) sent(id models.ServiceID) { l.slots[id].worker.fresh = false }

// inputs returns the inputs of a service's model.
func (l *loop) inputs(id models.ServiceID) []models.TensorSpec {
	return l.slots[id].worker.info.Inputs
}

// catchUp takes in the workers that came back with another model while a
// round with a span of the lost one was still running.
func (l *loop) catchUp() {
	late := l.late
	l.late = nil
	for _, e := range late {
		if state, err := l.exec.State(e.Service); err == nil && state.PID == e.PID {
			l.up(e)
		}
	}
}

// load tells scheduler and predictor what the worker learned of the model. A
// worker that comes back with the same model changes nothing.
func (l *loop) load(spec models.Service, e *executor.WorkerReady) error {
	slot := l.slots[spec.ID]
	w := &slot.worker
	if w.info != nil && l.specs[spec.ID] == spec && w.info.Hash == e.Info.Hash {
		return nil
	}
	if err := l.scheduler.Load(l.now(), spec); err != nil {
		return err
	}
	if err := l.predictor.Reset(spec.ID, spec.Operators); err != nil {
		return err
	}
	l.specs[spec.ID], w.info = spec, &e.Info
	l.learning.Changed()
	if l.profiles != nil {
		if p, ok := l.profiles.stored(e); ok && l.solo.Restore(spec.ID, p) == nil {
			l.log.Debug().Str("service", spec.Name).Int("cells", len(p.Cells)).Msg("the stored profile is taken")
		}
	}
	for _, t := range e.Info.Solo {
		if l.slower(spec, t) {
			continue
		}
		if err := l.solo.SetOperators(spec.ID, t.Size, t.SeqLen, t.Nanos); err != nil {
			return err
		}
	}
	return nil
}

// slower reports whether warming up took longer than what is known already. A
// machine that is busy while models load must not spoil a profile that is good,
// and a profile from a busy time must not outlive it.
func (l *loop) slower(spec models.Service, t wire.Solo) bool {
	known, ok := l.solo.Span(models.Span{Service: spec.ID, End: spec.Operators, Size: t.Size, SeqLen: t.SeqLen})
	var took time.Duration
	for _, n := range t.Nanos {
		took += time.Duration(n)
	}
	return ok && took > known
}

// answerRest answers what is accepted and not answered. What still runs ends
// for nobody.
func (l *loop) answerRest() {
	for id, p := range l.calls {
		l.cancel(id)
		delete(l.calls, id)
		p.call.Answer(query.Reply{Err: query.ErrDraining})
	}
}

// abandon answers whatever is left when the executor is gone.
func (l *loop) abandon() {
	for id, p := range l.calls {
		delete(l.calls, id)
		p.call.Answer(query.Reply{Err: query.ErrDraining})
	}
	close(l.ending)
	l.refuseAll()
}

// refusal translates an error of the scheduler's Arrive.
func refusal(err error) *query.Error {
	switch {
	case errors.Is(err, overlap.ErrQueueFull):
		return query.ErrQueueFull
	case errors.Is(err, overlap.ErrDraining):
		return query.ErrDraining
	case errors.Is(err, overlap.ErrExpired):
		return query.Unavailable(overlap.ReasonDeadlinePassed.String(), "the deadline had passed when the query arrived")
	}
	return &query.Error{Status: http.StatusInternalServerError, Reason: query.ReasonInternal, Message: err.Error()}
}
