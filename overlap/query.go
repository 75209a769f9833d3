package overlap

import (
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
)

// query is an accepted query until it is answered.
type query struct {
	models.Query
	rank      rank
	alone     time.Duration // the time it was predicted to take alone when it was queued, 0 where nobody asked
	postponed uint64        // the last triage that did so
	retries   int
	cancelled bool
	batch     *batch // nil while it waits in the queue of its service
	queuePos  int    // in the queue of its service
	expiryPos int    // in Scheduler.waiting
}

// span returns the operators that the query would run on its own.
func (q *query) span(operators int) models.Span {
	return models.Span{Service: q.Service, End: operators, Size: q.Size, SeqLen: q.SeqLen}
}

// rank is the place of a query or a batch in the order in which they run. It
// is total: no two queries have the same ID.
type rank struct {
	filler  bool          // its service was best effort when it arrived: it runs after all that is not
	level   int           // the priority, with 0 moved behind the numbered ones
	retried bool          // runs before its equals, it has waited for a worker already
	key     time.Duration // given by the policy
	arrival time.Duration
	id      models.QueryID
}

func level(priority int) int {
	if priority == 0 {
		return math.MaxInt
	}
	return priority
}

func (r *rank) before(o *rank) bool {
	switch {
	case r.filler != o.filler:
		return o.filler
	case r.level != o.level:
		return r.level < o.level
	case r.retried != o.retried:
		return r.retried
	case r.key != o.key:
		return r.key < o.key
	case r.arrival != o.arrival:
		return r.arrival < o.arrival
	}
	return r.id < o.id
}
