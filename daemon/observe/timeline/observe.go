package timeline

import (
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap"
)

// resultRefused is what became of a query that the scheduler did not accept.
const resultRefused = "refused"

// Observe implements [observe.Listener].
func (r *Ring) Observe(e *observe.Event) {
	switch e.Kind {
	case observe.Dispatched:
		r.begin(e.Round, e.Why, e.Services)
	case observe.Ended:
		if m := e.Measured; m != nil {
			for i := range m.Spans {
				if s := &m.Spans[i]; s.DeviceTook > 0 {
					r.onDevice(m.Round, s.Span.Batch, s.DeviceTook)
				}
			}
		}
		r.finish(e.At, e.Outcome)
	case observe.Refused:
		q := r.queryOf(e.Call, e.At)
		q.Result, q.Reason = resultRefused, reasonOf(overlap.ReasonOf(e.Err))
		r.ended(e.Call.Service.ID, &q)
	case observe.Answered:
		if e.Call != nil {
			r.remember(e.Call, e.Answer)
		}
	case observe.Set:
		r.setService(*e.Service, e.Fresh)
	case observe.Dropped:
		r.dropService(e.Service.ID)
	}
}

// remember remembers how a query ended. One that nobody waits for any more has no
// latency.
func (r *Ring) remember(c *query.Call, a *overlap.Answer) {
	if a.Result != overlap.Cancelled {
		took, allowed := a.At-c.Arrival.Sub(r.epoch), c.Deadline().Sub(c.Arrival)
		r.answered(a.Service, took, a.Result == overlap.Finished && took <= allowed)
	}
	q := r.queryOf(c, a.At)
	q.Batch, q.Result, q.Reason = uint64(a.Batch), a.Result.String(), reasonOf(a.Reason)
	if a.Batch != 0 {
		q.Started = a.Started
	}
	r.ended(c.Service.ID, &q)
}

func (r *Ring) queryOf(c *query.Call, end time.Duration) Query {
	return Query{
		ID: uint64(c.QueryID), Size: c.Size, Arrival: c.Arrival.Sub(r.epoch), End: end, Deadline: c.Deadline().Sub(r.epoch),
	}
}

func reasonOf(r overlap.Reason) string {
	if r == overlap.ReasonNone {
		return ""
	}
	return r.String()
}
