package loop

import (
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// inboxBurst is how many messages are taken in before the next round is
// chosen: events are queued, decisions are made in rounds.
const inboxBurst = 256

// loop is the scheduler goroutine: it takes in what happens, decides, sends rounds
// to the workers and settles what became of them.
type loop struct {
	env      *env
	services *services
	workers  *workers
	policies *policies
	calls    *calls
	overruns *overruns
	moves    *moves
	learners []*learner // of each kind of device

	timer    *time.Timer
	outcomes chan executor.Outcome // of all devices

	// Memory that is used again for each round.
	why      overlap.Explanation
	requests []executor.SpanRequest
	ran      executor.Outcome
	outcome  models.Outcome
	group    models.Group
}

func newLoop(e *env, all *services) *loop {
	l := &loop{env: e, services: all, timer: time.NewTimer(time.Hour), outcomes: make(chan executor.Outcome, len(e.devices)*executor.MaxOutcomes)}
	l.workers = &workers{env: e, services: all, loading: loading{}}
	l.policies = &policies{env: e, services: all}
	l.overruns = &overruns{env: e, held: map[models.BatchID][]heldQuery{}, learned: map[uint64]*predictor.Overrun{}}
	l.calls = &calls{env: e, services: all, overruns: l.overruns, pending: map[models.QueryID]*pending{}}
	l.moves = &moves{env: e, workers: l.workers, calls: l.calls, open: map[uint64]overlap.Move{}}
	for _, k := range e.kinds {
		of := e.options.Learning
		of.Emulated, of.Alone = k.devices[0].Emulated, k.devices[0].Alone
		k.learning = learning.New(of, k.predictor, k.solo)
		l.learners = append(l.learners, &learner{
			env: e, workers: l.workers, services: all, kind: k, learning: k.learning, measurement: measurement{env: e, workers: l.workers},
			listed: map[models.ServiceID]string{},
		})
	}
	return l
}

// run takes events in and gives rounds out until all executors are closed.
func (l *loop) run() {
	defer close(l.env.mail.done)
	defer l.calls.abandon()
	defer l.timer.Stop()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var first message
		var ended executor.Outcome
		open := true
		select {
		case first = <-l.env.mail.inbox:
		case ended, open = <-l.outcomes:
		case <-l.timer.C:
		case <-beat.C:
			l.services.turnedAway()
			l.policies.heed()
		}
		if !open {
			return
		}
		l.env.emit(observe.Event{Kind: observe.Woke, At: l.env.now()})
		l.take(first)
		if ended.Round != 0 {
			l.finish(ended)
		}
		runtime.Gosched() // who is about to hand in a call does, so that one decision has all of them
		for range inboxBurst {
			select {
			case m := <-l.env.mail.inbox:
				l.take(m)
				continue
			default:
			}
			break
		}
		l.decide()
		l.env.mail.board.Publish(l.status)
		l.rest()
	}
}

// take handles one message.
func (l *loop) take(m message) {
	switch {
	case m.call != nil:
		l.calls.arrive(m.call)
	case m.cancel != 0:
		l.calls.cancel(m.cancel)
	case m.ask != nil:
		m.ask()
		l.answer()
		l.follow()
	}
}

// follow has the learners do what has become due for them with what happened to services.
func (l *loop) follow() {
	stop, rebind := l.services.stop, l.services.rebind
	l.services.stop, l.services.rebind = false, false
	for _, r := range l.learners {
		if stop {
			r.stop()
		}
		if rebind {
			r.bind()
		}
	}
}

// decide answers what is over, starts the next round of each device that is free, and sets the
// timer for what happens by the passing of time alone.
func (l *loop) decide() {
	l.workers.shrink()
	l.services.reap(slices.ContainsFunc(l.learners, func(r *learner) bool { return r.measurement.reads() }))
	l.follow()
	next := l.ready()
	l.env.door.Advance(l.env.now())
	idle, waits := l.env.scheduler.Idle(), next < overlap.Never
	sooner := func(at time.Duration, ok bool) {
		if ok {
			next = min(next, at)
		}
	}
	for _, r := range l.learners {
		sooner(r.turn(idle, waits))
	}
	for _, d := range l.env.devices {
		sooner(l.watch(d))
	}
	if next < overlap.Never {
		l.timer.Reset(max(next-l.env.now(), 0))
	}
}

// ready does what the scheduler has ready, until it has nothing more. It returns when to ask
// again though nothing happens. While the only device measures, all but answers wait for it.
func (l *loop) ready() (wake time.Duration) {
	for len(l.env.devices) > 1 || !l.env.devices[0].taken || l.env.scheduler.Ended() {
		now := l.env.now()
		r := l.env.door.Ready(now)
		l.end(&r)
		if r.Round != nil {
			l.dispatch(r.Round)
		}
		if r.Wake > now || r.Round == nil && !r.Ended() {
			return r.Wake
		}
	}
	return overlap.Never
}

// answer does what the scheduler wants done with what is over, without a decision.
func (l *loop) answer() {
	for l.env.scheduler.Ended() {
		r := l.env.door.Ready(l.env.now())
		l.end(&r)
	}
}

// end frees what the queries that are over have held, stops what is preempted at the next operator,
// answers, and sends batches on their way to another device.
func (l *loop) end(r *overlap.Ready) {
	for _, b := range r.Released {
		l.env.devices[b.Device].exec.Release(b.Service, b.Batch)
	}
	for _, b := range r.Stops {
		l.env.devices[b.Device].exec.Stop(b.Service, b.Batch)
	}
	l.calls.end(r.Answers)
	l.moves.begin(r.Moves)
}

// lost is called when a span is lost, and with it its worker.
func (l *loop) lost(id models.ServiceID, d *device) {
	l.workers.lost(id, d)
	l.answer()
}

// watch ends the round that a device runs once it has exceeded its limit, be it one that
// serves or one that measures. It returns when to look again.
func (l *loop) watch(d *device) (at time.Duration, ok bool) {
	switch m := &l.learners[d.kind.index].measurement; {
	case d.taken && m.broken:
		return d.watch(l.env.now(), m.round, &m.limit)
	case d.taken, d.until == 0:
		return 0, false // nobody waits for the device
	}
	return d.watch(l.env.now(), d.round.Number, &d.until)
}

// dispatch sends a round to the workers. A round that cannot be sent fails at
// once, so that its queries are answered.
func (l *loop) dispatch(next *overlap.Round) {
	d := l.env.devices[next.Device]
	d.round = *next
	d.rounds++
	r := &d.round
	l.requests = l.requests[:0]
	for i, span := range r.Group.Spans {
		l.services.list[span.Service].replicas[d.index].on(roundSent)
		request := executor.SpanRequest{Span: span}
		if span.Start == 0 {
			for _, id := range r.Queries[i] {
				request.Queries = append(request.Queries, wire.QueryTensors{ID: id, Inputs: l.calls.pending[id].tensors})
			}
		}
		l.requests = append(l.requests, request)
	}
	d.until = r.Start + l.env.scheduler.Allowed(r.Device, r.Predicted.Bound, l.env.config.Worker.OverrunFactor)
	l.why = l.env.scheduler.Explain()
	d.apart = l.apartOf(d.kind.solo, r)
	l.env.emit(observe.Event{Kind: observe.Dispatched, Round: r, Why: &l.why, Apart: d.apart, Services: l.services.specs})
	if err := d.exec.Run(r.Number, l.requests); err != nil {
		l.env.log.Error().Err(err).Uint64("round", r.Number).Msg("sending a round to the workers failed")
		o := models.Outcome{Round: r.Number, Device: d.index}
		for i, span := range r.Group.Spans {
			l.calls.blame(r.Queries[i], err)
			o.Spans = append(o.Spans, models.SpanOutcome{Span: span, Status: models.SpanFailed})
		}
		l.settle(d, &o, nil)
	}
}

// apartOf returns what the spans of a round take one after another, and what their
// queries do, or zero if one of these times is not known. A round of one query can gain
// nothing, and is not asked about.
func (l *loop) apartOf(solo *predictor.Solo, r *overlap.Round) (sum observe.Apart) {
	if len(r.Group.Spans) == 1 && len(r.Queries[0]) == 1 {
		return observe.Apart{}
	}
	for i, span := range r.Group.Spans {
		took, ok := solo.Span(span)
		if !ok {
			return observe.Apart{}
		}
		took *= time.Duration(span.Times(len(r.Queries[i])))
		sum.Spans += took
		sum.Queries += l.unmerged(solo, span, r.Queries[i], took)
	}
	return sum
}

// unmerged returns what the queries of a span take one after another, if each is a
// batch of its own; together they take so long. Most have the same size.
func (l *loop) unmerged(solo *predictor.Solo, span models.Span, queries []models.QueryID, together time.Duration) (sum time.Duration) {
	if len(queries) == 1 {
		return together
	}
	span.Size = 0
	var took time.Duration
	for _, id := range queries {
		p := l.calls.pending[id]
		if p == nil {
			continue // it was given up
		}
		if p.call.Size != span.Size {
			span.Size = p.call.Size
			took, _ = solo.Span(span)
		}
		sum += took
	}
	return sum
}

// finish takes in what became of a round.
func (l *loop) finish(o executor.Outcome) {
	d := l.env.devices[o.Device]
	if o.Moved {
		l.moves.land(o.Round, o.Spans[0].Status, o.Took, o.Spans[0].Err)
		l.answer()
		l.workers.catchUp()
		l.follow()
		return
	}
	if o.Round >= measuringIDs {
		l.learners[d.kind.index].finished(d, &o)
		l.answer()
		return
	}
	l.ran = o
	l.outcome = models.Outcome{Round: o.Round, Device: o.Device, Took: o.Took, Latency: o.Latency(), Spans: l.outcome.Spans[:0]}
	for i := range o.Spans {
		l.outcome.Spans = append(l.outcome.Spans, l.spanOutcome(d, &o.Spans[i]))
	}
	if o.Overrun {
		l.land(&o)
	} else {
		l.learn(d, &o)
		l.settle(d, &l.outcome, &l.ran)
	}
	l.workers.catchUp()
	l.follow()
	if r := l.learners[d.kind.index]; d.until == 0 && r.pending() {
		r.measure() // between two rounds, if it has not been quiet for long
	}
}

// land takes in how a span has ended that was set apart.
func (l *loop) land(o *executor.Outcome) {
	if err := l.env.step(overlap.Event{Kind: overlap.Finish, Outcome: l.outcome}); err != nil {
		l.env.log.Error().Err(err).Uint64("round", o.Round).Msg("recording the end of an overrun failed")
	}
	l.answer()
	for i := range l.outcome.Spans {
		l.overruns.learn(l.env.devices[o.Device], o.Round, l.outcome.Spans[i])
	}
	l.overruns.landed(o)
}

// spanOutcome takes in how a span went, and returns that part which concerns the
// scheduler.
func (l *loop) spanOutcome(d *device, s *executor.SpanOutcome) models.SpanOutcome {
	out := s.SpanOutcome
	switch s.Status {
	case models.SpanDone:
		if !s.Finished && s.Reached == l.services.specs[s.Span.Service].Operators {
			// The worker came back with another model, which is not known yet.
			out.Status = models.SpanFailed
			l.calls.blame(l.queriesOf(s), errors.New("its model has just changed"))
		}
	case models.SpanLost:
		l.lost(s.Span.Service, d)
	case models.SpanCrashed:
		l.lost(s.Span.Service, d)
		if errors.Is(s.Err, executor.ErrKilled) {
			out.Status = models.SpanLost // it is not known to be at fault, and may run again
		} else {
			l.calls.convict(&s.Span, l.queriesOf(s))
		}
		l.calls.blame(l.queriesOf(s), s.Err)
	case models.SpanOverrun:
		l.overruns.count(l.services.list[s.Span.Service])
	case models.SpanFailed:
		l.calls.blame(l.queriesOf(s), s.Err)
	}
	member := l.services.list[s.Span.Service]
	if s.Status == models.SpanDone || s.Status == models.SpanStopped {
		member.entry.Stats.Ran(s.Took, s.DeviceTook)
	}
	if s.Finished {
		times := s.Span.Times(len(s.Queries))
		member.entry.Stats.Executed(times)
		if member.family != nil {
			member.family.front.Stats.Executed(times)
		}
	}
	for i := range s.Queries {
		if p := l.calls.pending[s.Queries[i].ID]; p != nil {
			p.outputs = s.Queries[i]
		} else {
			s.Queries[i].Release()
		}
	}
	return out
}

// members returns the queries of the batch that a span ran. Of an overrun only those that
// still wait are known, and none is returned if that is not all.
func (l *loop) queriesOf(s *executor.SpanOutcome) []models.QueryID {
	if ids := l.env.scheduler.Members(s.Span.Batch); ids != nil {
		return ids
	}
	if ids, all := l.env.scheduler.Unanswered(s.Span.Batch); all {
		return ids
	}
	return nil
}

// learn lets the predictor follow what was measured of a group, of which each span is
// what ran of it. In back-to-back execution, each query took an equal part of the time.
func (l *loop) learn(d *device, o *executor.Outcome) {
	l.group.Spans = l.group.Spans[:0]
	open, times := 0, time.Duration(1)
	if len(o.Spans) == 1 {
		times = time.Duration(o.Spans[0].Span.Times(len(d.round.Queries[0])))
	}
	for i := range o.Spans {
		s := &o.Spans[i]
		ran := s.Span
		if s.Status == models.SpanOverrun {
			l.group.Spans = append(l.group.Spans, ran)
			open++
			continue
		}
		ran.End = s.Reached
		if s.Status != models.SpanDone && s.Status != models.SpanStopped || ran.Len() <= 0 {
			return
		}
		if ran.End < s.Span.End {
			d.apart.Shorten(d.kind.solo.Span(models.Span{Service: ran.Service, Start: ran.End, End: s.Span.End, Size: ran.Size, SeqLen: ran.SeqLen}))
		}
		l.group.Spans = append(l.group.Spans, ran)
	}
	if open > 0 {
		l.overruns.learned[o.Round] = predictor.NewOverrun(l.group, o.Took/times, open)
		return
	}
	if err := d.kind.predictor.Observe(l.env.now(), l.group, o.Latency()/times); err != nil {
		l.env.log.Debug().Err(err).Msg("a measured time was ignored")
	}
}

// settle hands the outcome of a round to the scheduler, which frees the workers of
// what they need not keep any more. Nothing was measured of a round that could not be sent.
func (l *loop) settle(d *device, o *models.Outcome, measured *executor.Outcome) {
	d.until = 0
	d.busy += o.Took
	if measured != nil {
		d.late += measured.Late
	}
	l.env.emit(observe.Event{Kind: observe.Ended, At: l.env.now(), Outcome: o, Measured: measured, Gain: d.apart.Gain(measured)})
	if err := l.env.step(overlap.Event{Kind: overlap.Finish, Outcome: *o}); err != nil {
		l.env.log.Error().Err(err).Uint64("round", o.Round).Msg("finishing a round failed")
	}
	l.answer()
}

// rest shows that the loop is alive and has nothing more to do.
func (l *loop) rest() {
	now := l.env.now()
	l.env.mail.beat.Store(int64(now))
	l.env.breadth.look(now, l.env.mail.lastID.Load())
	l.env.emit(observe.Event{Kind: observe.Rested, At: now})
}

// status returns how the loop stands, and has the listeners copy what they have
// counted so far, so that both are of one moment.
func (l *loop) status(shapes bool) *status.Status {
	l.env.emit(observe.Event{Kind: observe.Published})
	return statusOf(l, shapes)
}
