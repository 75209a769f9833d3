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

// Bound is what no schedule does better than.
type Bound struct {
	Queries    int     `json:"queries"`
	InTime     int     `json:"in_time"`    // at most
	Violations float64 `json:"violations"` // at least, of 1
	Gain       float64 `json:"gain"`       // the largest that was found of a group
	Tried      int     `json:"tried"`      // groups
	Exact      bool    `json:"exact"`      // all sets of queries were tried
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
	c, err := newCosts(&sc)
	if err != nil {
		return nil, err
	}
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
	b.Exact = len(jobs) <= maxExact
	if b.Exact {
		b.InTime = exact(jobs)
	} else {
		b.InTime = relaxed(jobs)
	}
	b.Violations = float64(b.Queries-excused-b.InTime) / float64(b.Queries)
	return b, nil
}

// whole returns the span of all operators of a service's model.
func (c *costs) whole(service models.ServiceID, size, seqLen int) models.Span {
	return models.Span{Service: models.ServiceID(c.bound[service]), End: c.operators[service], Size: size, SeqLen: seqLen}
}
