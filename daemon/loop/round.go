package loop

import (
	"errors"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// overrunFactor is the multiple of its predicted bound after which a round is an overrun. The bound
// covers how much the latency varies, so such a round is more than a slow one, and until then the
// other services wait for it.
const overrunFactor = 2

// dispatch sends a round to the workers. A round that cannot be sent fails at
// once, so that its queries are answered.
func (l *loop) dispatch(next *overlap.Round) {
	d := l.env.devices[next.Device]
	run := d.runs[next.Slot]
	run.round = *next
	d.rounds++
	r := &run.round
	l.requests = l.requests[:0]
	for i, span := range r.Group.Spans {
		l.services.list[span.Service].replicas[d.index].on(roundSent)
		request := executor.SpanRequest{Span: span}
		if span.Start == 0 {
			for _, id := range r.Queries[i] {
				request.Queries = append(request.Queries, wire.QueryTensors{ID: id, Inputs: l.calls.pending[id].call.Inputs})
			}
		}
		l.requests = append(l.requests, request)
	}
	run.limit = limit{until: r.Start + l.env.scheduler.Allowed(r.Device, r.Predicted.Bound, overrunFactor)}
	l.why = l.env.scheduler.Explain()
	run.apart = l.apartOf(d.kind.solo, r)
	l.env.emit(observe.Event{Kind: observe.Dispatched, Round: r, Why: &l.why, Apart: run.apart, Services: l.services.specs})
	if err := d.exec.Run(r.Number, l.requests); err != nil {
		l.env.log.Error().Err(err).Uint64("round", r.Number).Msg("sending a round to the workers failed")
		o := models.Outcome{Round: r.Number, Device: d.index}
		for i, span := range r.Group.Spans {
			l.calls.blame(r.Queries[i], err)
			o.Spans = append(o.Spans, models.SpanOutcome{Span: span, Status: models.SpanFailed})
		}
		l.settle(d, run, &o, nil)
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
			continue // the query was abandoned
		}
		if p.call.Size != span.Size {
			span.Size = p.call.Size
			took, _ = solo.Span(span)
		}
		sum += took
	}
	return sum
}

// watch ends the rounds of a device, which serve or measure, once they have exceeded their limits. It
// returns when to check again.
func (l *loop) watch(d *device) (at time.Duration, ok bool) {
	switch m := &l.learners[d.kind.index].measurement; {
	case d.taken && m.broken:
		return m.limit.watch(l.env.now(), m.round, d.exec)
	case d.taken:
		return 0, false // nobody waits for the device
	}
	for _, r := range d.runs {
		if r.until == 0 {
			continue
		}
		if next, again := r.watch(l.env.now(), r.round.Number, d.exec); again && (!ok || next < at) {
			at, ok = next, true
		}
	}
	return at, ok
}

// finish records the outcome of a round: what became of each span and its queries, how long it took
// for the predictor, and that the device is free for the scheduler, which answers.
func (l *loop) finish(d *device, o *executor.Outcome) {
	l.ran = *o
	run := d.run(o.Round)
	l.reduce(d, &l.ran)
	l.learn(d, run, &l.ran)
	l.settle(d, run, &l.outcome, &l.ran)
}

// landed records how a span has ended that was detached, and frees what it has used.
func (l *loop) landed(d *device, o *executor.Outcome) {
	l.reduce(d, o)
	if err := l.env.step(overlap.Event{Kind: overlap.Finish, Outcome: l.outcome}); err != nil {
		l.env.log.Error().Err(err).Uint64("round", o.Round).Msg("recording the end of an overrun failed")
	}
	l.answer()
	for i := range l.outcome.Spans {
		l.learnLate(d, o.Round, l.outcome.Spans[i])
		l.calls.giveBack(o.Spans[i].Span.Batch)
	}
}

// reduce sets the outcome for the scheduler to that part of an executor's outcome which concerns it,
// after all others have had theirs.
func (l *loop) reduce(d *device, o *executor.Outcome) {
	l.outcome = models.Outcome{Round: o.Round, Device: o.Device, Took: o.Took, Latency: o.Latency(), Spans: l.outcome.Spans[:0]}
	for i := range o.Spans {
		l.outcome.Spans = append(l.outcome.Spans, l.spanEnded(d, &o.Spans[i]))
	}
}

// errModelChanged is why a span fails that was cut for the model before.
var errModelChanged = errors.New("its model has just changed")

// spanEnded counts a span, gives its outputs to the queries or the fault to whom it belongs, and
// returns what the scheduler learns of it.
func (l *loop) spanEnded(d *device, s *executor.SpanOutcome) models.SpanOutcome {
	of, out := l.services.list[s.Span.Service], s.SpanOutcome
	switch s.Status {
	case models.SpanDone:
		if !s.Finished && s.Reached == l.services.specs[s.Span.Service].Operators {
			// The worker came back with another model, which is not known yet.
			out.Status, s.Err = models.SpanFailed, errModelChanged
		}
	case models.SpanLost, models.SpanCrashed:
		l.workers.lost(s.Span.Service, d)
		l.answer()
		if errors.Is(s.Err, executor.ErrKilled) {
			out.Status = models.SpanLost // it is not known to be at fault, and may run again
		}
	}
	of.ran(l.env, s)
	l.calls.ended(s, out.Status)
	return out
}

// learn lets the predictor follow what was measured of a group, of which each span is
// what ran of it. In back-to-back execution, each query took an equal part of the time.
func (l *loop) learn(d *device, run *running, o *executor.Outcome) {
	l.group.Spans, l.group.Beside = l.group.Spans[:0], run.round.Beside
	open, times := 0, time.Duration(1)
	if len(o.Spans) == 1 {
		times = time.Duration(o.Spans[0].Span.Times(len(run.round.Queries[0])))
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
			run.apart.Shorten(d.kind.solo.Span(models.Span{Service: ran.Service, Start: ran.End, End: s.Span.End, Size: ran.Size, SeqLen: ran.SeqLen, Share: ran.Share}))
		}
		l.group.Spans = append(l.group.Spans, ran)
	}
	if open > 0 {
		l.overruns[o.Round] = predictor.NewOverrun(l.group, o.Took/times, open)
		return
	}
	if err := d.kind.predictor.Observe(l.env.now(), l.group, o.Latency()/times); err != nil {
		l.env.log.Debug().Err(err).Msg("a measured time was ignored")
	}
}

// learnLate lets the predictor learn from a round once all of its detached spans have ended.
func (l *loop) learnLate(d *device, round uint64, ended models.SpanOutcome) {
	if r := l.overruns[round]; r != nil && r.Ended(d.kind.predictor, l.env.now(), ended) {
		delete(l.overruns, round)
	}
}

// settle hands the outcome of a round to the scheduler, which frees the workers of
// what they need not keep any more. Nothing was measured of a round that could not be sent.
func (l *loop) settle(d *device, run *running, o *models.Outcome, measured *executor.Outcome) {
	run.until = 0
	part := d.part(o)
	d.busy += part
	if measured != nil {
		d.late += measured.Late
	}
	l.env.emit(observe.Event{Kind: observe.Ended, At: l.env.now(), Outcome: o, Measured: measured, Part: part, Gain: run.apart.Gain(measured)})
	if err := l.env.step(overlap.Event{Kind: overlap.Finish, Outcome: *o}); err != nil {
		l.env.log.Error().Err(err).Uint64("round", o.Round).Msg("finishing a round failed")
	}
	l.answer()
}
