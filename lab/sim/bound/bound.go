// Package bound computes a lower bound for the violations of any schedule, even one that
// knows all queries in advance, pauses and resumes batches at any time, and always overlaps
// and batches as well as the device ever does. Compare [Of] with the runs of package sim.
//
// # Why no schedule does better
//
// The work of a query is its share of the isolated latency of the best batch, divided by
// the largest gain of any group. The gain of a group is the sum of the isolated latencies
// of its spans, as parts of their models, over the latency of the group. With that
// definition, a group never does more work than it takes time. A schedule that answers a
// set of queries in time does all of their work between their arrivals and their deadlines,
// and at most one second of work per second on each device.
//
// If queries may also be done in part, the largest number of queries is reached as follows:
// take the queries in ascending order of their work, and do as much of each as fits in
// every interval that contains its time. That is optimal, because the work that fits is a
// polymatroid, for which the greedy algorithm is optimal.
//
// # Limitations
//
// The result is a bound that a schedule may not reach, because groups of the largest gain
// need the right partners at the right time. It assumes median latencies, so runs with
// lower latencies may beat it if the latencies of the device vary. The largest gain is that
// of the groups that were tried: up to four spans that start and end at certain operators
// of each model, in certain sizes. [Bound].Tried is their number.
package bound

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
)

// MaxQueries limits the queries of a scenario, because the computing time grows with their
// third power.
const MaxQueries = 2000

// ErrTooMany is returned if a scenario is too large for [Of] or [Foresee].
var ErrTooMany = errors.New("too many queries for a bound")

// Bound is a bound for all schedules. At most InTime queries are answered in time, so at
// least the fraction Violations violates its target. Gain is the largest gain of the Tried
// groups.
type Bound struct {
	Queries    int     `json:"queries"`
	InTime     int     `json:"in_time"`
	Violations float64 `json:"violations"`
	Gain       float64 `json:"gain"`
	Tried      int     `json:"tried"`

	// Foresight is nil unless the caller sets it to the result of [Foresee].
	Foresight *foresight `json:"foresight,omitempty"`
}

// job is a query whose work, in seconds, must be done between two times.
type job struct {
	from, to time.Duration
	work     float64
}

// Of returns the bound for the queries of a scenario. It does not depend on the policy.
func Of(sc sim.Scenario) (*Bound, error) {
	queries, err := sc.Submissions()
	if err != nil {
		return nil, err
	}
	if len(queries) > MaxQueries {
		return nil, fmt.Errorf("%w: %d, and at most %d are allowed; give fewer", ErrTooMany, len(queries), MaxQueries)
	}
	c := newCosts(&sc)
	c.grow(0, nil, 0, 0)
	b := &Bound{Queries: len(queries), Gain: c.gain, Tried: c.tried}
	var jobs []job
	excused := 0
	for i := range queries {
		q := &queries[i]
		due := q.At + sc.Services[q.Service].Target
		if q.Leaves > 0 && q.Leaves < due {
			excused++ // it cannot violate its target
			continue
		}
		share, fastest := c.of(q)
		if q.At+fastest <= due {
			jobs = append(jobs, job{q.At, due, share.Seconds() / c.gain / float64(max(sc.Devices, 1))})
		}
	}
	b.InTime = relaxed(jobs)
	b.Violations = float64(b.Queries-excused-b.InTime) / float64(b.Queries)
	return b, nil
}

// whole returns the span of all operators of a service's model.
func (c *costs) whole(service models.ServiceID, size, seqLen int) models.Span {
	return models.Span{Service: models.ServiceID(c.bound[service]), End: c.operators[service], Size: size, SeqLen: seqLen}
}
