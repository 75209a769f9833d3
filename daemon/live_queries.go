package daemon

import (
	"encoding/json"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap"
)

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

// answerQueries tells of the queries that are over after so many, or of how many
// there were.
func (e *Endpoint) answerQueries(ctx *fasthttp.RequestCtx) {
	ring, fault := e.ringOf(ctx)
	if fault != nil {
		writeError(ctx, fault)
		return
	}
	since, ok := sinceOf(ctx)
	if !ok {
		writeError(ctx, errQueriesSince)
		return
	}
	text, err := json.Marshal(ring.ReadQueries(since))
	if err != nil {
		writeError(ctx, query.ErrInternal)
		return
	}
	e.writeJSON(ctx, text)
}

var errQueriesSince = query.Invalid("since must be a number of queries: the next of the answer before, or 0")
