package daemon

import (
	"time"

	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// What the loop notes of itself goes into its record, which is plain memory of
// its own. Without metrics there is no record, and nothing is noted.

// wakes notes that the loop has something to do.
func (l *loop) wakes() {
	if l.record != nil {
		l.record.Wake(l.now())
	}
}

// rests shows that the loop is alive and has nothing more to do.
func (l *loop) rests() {
	now := l.now()
	l.beat.Store(int64(now))
	if l.record != nil {
		l.record.Rest(now)
	}
}

// noteRound notes a round that is sent.
func (l *loop) noteRound(r *overlap.Round) {
	if l.record == nil {
		return
	}
	g := metrics.Group{Spans: len(r.Group.Spans), Predicted: r.Predicted.Latency, Bound: r.Predicted.Bound}
	chosen := l.scheduler.Explain().Candidates
	for i := range chosen {
		if left := chosen[i].Deadline - r.Start; chosen[i].Place > 0 && (!g.Urgent || left < g.Headroom) {
			g.Headroom, g.Urgent = left, true
		}
	}
	if g.Spans > 1 {
		g.Solo = l.soloOf(r)
	}
	l.record.Dispatch(g)
}

// soloOf returns what the spans of a round take one after another, or 0 if that
// is not known.
func (l *loop) soloOf(r *overlap.Round) (sum time.Duration) {
	for _, span := range r.Group.Spans {
		took, ok := l.solo.Span(span)
		if !ok {
			return 0
		}
		sum += took
	}
	return sum
}

// noteOutcome notes how the round went that was sent last.
func (l *loop) noteOutcome(o *executor.Outcome) {
	if l.record == nil {
		return
	}
	whole := true
	for i := range o.Spans {
		whole = whole && o.Spans[i].Status == models.SpanDone
	}
	l.record.Finish(metrics.Outcome{Took: o.Took, Compared: o.Latency(), Whole: whole})
}

// noteSpan notes what both clocks say of a span.
func (l *loop) noteSpan(s *executor.SpanOutcome) {
	if s.Status != models.SpanDone && s.Status != models.SpanStopped {
		return
	}
	l.slots[s.Span.Service].service.Stats.Ran(s.Took, s.DeviceTook)
	if s.DeviceTook > 0 {
		l.timeline.OnDevice(l.outcome.Round, s.Span.Batch, s.DeviceTook)
	}
}

// noteAnswer notes a query that is over.
func (l *loop) noteAnswer(a *overlap.Answer) {
	if l.record == nil || a.Result != overlap.Finished {
		return
	}
	l.record.Answer(int(l.slots[a.Service].series), metrics.Query{
		Latency: a.At - a.Started + a.Queue, Queue: a.Queue, Target: l.slots[a.Service].config.Target,
	})
}

// publish returns the status to publish, and leaves a copy of the record beside it.
func (l *loop) publish() *status.Status {
	if l.record != nil {
		r := metrics.NewRecord(len(l.slots))
		l.record.CopyTo(r)
		l.recorded.Store(r)
	}
	return l.status()
}
