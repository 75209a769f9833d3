// Package bound computes how few violations a schedule could have: one that knows
// all queries beforehand, stops and goes on where it likes, and always overlaps
// and merges as well as the device ever does. [Of] compares with the runs of
// package sim.
//
// # Why no schedule does better
//
// Let the work of a query be what its share of the best batch takes alone, over
// the largest gain of any group: the time that its spans take alone, as parts
// of their models, over that of the group. Then a group never does more work
// than it takes time. A schedule that answers a set of queries in time does all
// their work between their arrivals and their deadlines, at most one second of
// it in each second of each device. Dropping that it does each query's work
// whole, the most queries are done by taking those with the least work first,
// each as far as the intervals allow that hold its time: the work that fits is a
// polymatroid, for which the greedy algorithm is optimal.
//
// # What it is not
//
// It is a bound, and no schedule may reach it: groups of the largest gain need
// the right partners at the right time. It is that of a device whose runs all
// take the middle of their time; single runs that are faster may beat it where
// the runs of a device spread. And the largest gain is that of the groups that
// were tried: of up to four spans that start and end at some operators of each
// model, in some sizes; [Bound].Tried is their number.
package bound

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
)

// MaxQueries limits the queries of a case: what is calculated grows with their
// third power.
const MaxQueries = 2000

// ErrTooMany is returned when a scenario has more than MaxQueries.
var ErrTooMany = errors.New("too many queries for a bound")

// Bound is what no schedule does better than: at most InTime queries are answered in
// time, so that at least the share Violations is not. Gain is the largest of the Tried
// groups.
type Bound struct {
	Queries    int     `json:"queries"`
	InTime     int     `json:"in_time"`
	Violations float64 `json:"violations"`
	Gain       float64 `json:"gain"`
	Tried      int     `json:"tried"`

	// Foresight is nil unless the caller asks [Foresee], too.
	Foresight *Foresight `json:"foresight,omitempty"`
}

// job is a query whose work is to be done between two times.
type job struct {
	from, to time.Duration
	work     float64 // seconds
}

// Of returns the bound for the queries of a scenario, whatever its policy.
func Of(sc sim.Scenario) (*Bound, error) {
	queries, err := sc.Submissions()
	if err != nil {
		return nil, err
	}
	if len(queries) > MaxQueries {
		return nil, fmt.Errorf("%w: %d, of which %d are allowed; give fewer", ErrTooMany, len(queries), MaxQueries)
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
			excused++ // whatever becomes of it is no violation
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
