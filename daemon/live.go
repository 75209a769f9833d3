package daemon

import (
	"time"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap"
)

// Timelines implements Host.
func (b *backend) Timelines() []*timeline.Ring { return []*timeline.Ring{b.timeline} }

// remember puts a round into the timeline.
func (l *loop) remember(r *overlap.Round) {
	why := l.scheduler.Explain()
	l.timeline.Begin(r, &why, l.specs)
}

// rememberAnswer puts the end of a query into the timeline. One that nobody
// waits for any more has no latency.
func (l *loop) rememberAnswer(c *query.Call, a *overlap.Answer) {
	if a.Result == overlap.Cancelled {
		return
	}
	took := a.At - c.Arrival.Sub(l.epoch)
	deadline := c.Deadline().Sub(c.Arrival)
	l.timeline.Answered(a.Service, took, a.Result == overlap.Finished && took <= deadline)
}

// resultRefused is what became of a query that the scheduler did not accept.
const resultRefused = "refused"

// rememberQuery puts a query that is over into the timeline.
func (l *loop) rememberQuery(c *query.Call, a *overlap.Answer) {
	q := l.queryOf(c, a.At)
	q.Batch, q.Result = uint64(a.Batch), a.Result.String()
	if a.Batch != 0 {
		q.Started = a.Started
	}
	if a.Reason != overlap.ReasonNone {
		q.Reason = a.Reason.String()
	}
	l.timeline.Ended(c.Service.ID, &q)
}

// rememberRefusal puts a query that was not accepted into the timeline.
func (l *loop) rememberRefusal(c *query.Call, err error) {
	q := l.queryOf(c, l.now())
	q.Result = resultRefused
	if reason := overlap.ReasonOf(err); reason != overlap.ReasonNone {
		q.Reason = reason.String()
	}
	l.timeline.Ended(c.Service.ID, &q)
}

func (l *loop) queryOf(c *query.Call, end time.Duration) timeline.Query {
	return timeline.Query{
		ID: uint64(c.QueryID), Size: c.Size, Arrival: c.Arrival.Sub(l.epoch), End: end, Deadline: c.Deadline().Sub(l.epoch),
	}
}
