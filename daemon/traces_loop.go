package daemon

import (
	"time"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// What the scheduler goroutine notes of queries that are traced, in their own
// memory. While there are none it looks at a number.

// traces is what the loop keeps for that.
type traces struct {
	open int        // calls that are traced, at least
	ran  []tracedIn // of the round that runs
}

// tracedIn is a query that is traced, and the batch that it runs in.
type tracedIn struct {
	query models.QueryID
	batch models.BatchID
}

// traceArrival notes that a query was accepted.
func (l *loop) traceArrival(c *query.Call) {
	if c.Trace == nil {
		return
	}
	l.traces.open++
	c.Trace.Epoch, c.Trace.Device = l.epoch, l.device
}

// traceRound notes a round that is sent.
func (l *loop) traceRound(r *overlap.Round) {
	l.traces.ran = l.traces.ran[:0]
	if l.traces.open == 0 {
		return
	}
	var group []tracing.Member // of all runs
	for i, span := range r.Group.Spans {
		for _, id := range r.Queries(i) {
			p := l.calls[id]
			if p == nil || p.call.Trace == nil {
				continue
			}
			if group == nil {
				group = l.members(r)
			}
			p.call.Trace.Ran(tracing.Run{
				Round: r.Number, Batch: uint64(span.Batch), BatchSize: span.Size, Start: span.Start, End: span.End, Of: l.specs[span.Service].Operators,
				Group: group, Planned: r.Planned, Predicted: r.Predicted.Latency, Bound: r.Predicted.Bound, Began: r.Start,
			})
			l.traces.ran = append(l.traces.ran, tracedIn{id, span.Batch})
		}
	}
}

func (l *loop) members(r *overlap.Round) []tracing.Member {
	group := make([]tracing.Member, len(r.Group.Spans))
	for i, span := range r.Group.Spans {
		group[i] = tracing.Member{Service: l.name(span.Service), Start: span.Start, End: span.End}
	}
	return group
}

// traceOutcome notes how the round went. Queries that were answered before, as
// their client left, are not ours any more.
func (l *loop) traceOutcome(now time.Duration, o *models.Outcome) {
	for _, t := range l.traces.ran {
		p := l.calls[t.query]
		if p == nil || p.call.Trace == nil {
			continue
		}
		run := p.call.Trace.Last(o.Round)
		if run == nil {
			continue
		}
		run.Ended, run.RoundTook = now, o.Took
		for i := range o.Spans {
			if s := &o.Spans[i]; s.Span.Batch == t.batch {
				run.Took, run.Reached, run.Status = s.Took, s.Reached, s.Status.String()
			}
		}
	}
	l.traces.ran = l.traces.ran[:0]
}

// traceAnswer notes how a query ended. From then on its trace is the
// endpoint's.
func (l *loop) traceAnswer(c *query.Call, a *overlap.Answer) {
	if c.Trace == nil {
		return
	}
	l.traces.open--
	c.Trace.Answered = true
	c.Trace.Answer = tracing.Answer{
		At: a.At, Queue: a.Queue, Run: a.Run, Result: a.Result.String(), Reason: a.Reason.String(), Retries: a.Retries,
	}
}
