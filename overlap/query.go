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
// is total: no two queries have the same ID. Snapshots hold it as it is.
type rank struct {
	// Filler is set if the service was best effort when the query arrived: it runs
	// after all that is not.
	Filler bool
	// Level is the priority, with 0 moved behind the numbered ones.
	Level int
	// Retried runs before its equals, as it has waited for a worker already.
	Retried bool
	// Key is given by the policy.
	Key     time.Duration
	Arrival time.Duration
	ID      models.QueryID
}

func level(priority int) int {
	if priority == 0 {
		return math.MaxInt
	}
	return priority
}

func (r *rank) before(o *rank) bool {
	switch {
	case r.Filler != o.Filler:
		return o.Filler
	case r.Level != o.Level:
		return r.Level < o.Level
	case r.Retried != o.Retried:
		return r.Retried
	case r.Key != o.Key:
		return r.Key < o.Key
	case r.Arrival != o.Arrival:
		return r.Arrival < o.Arrival
	}
	return r.ID < o.ID
}

// batch is one or more queries that run as one tensor.
type batch struct {
	id        models.BatchID // 0 until it starts
	service   *service
	members   []*query // in gather order
	next      int      // the operator to run next
	size      int
	seqLen    int
	rank      rank          // the rank of its most urgent member that is not cancelled
	deadline  time.Duration // the latest of its members that are not cancelled
	started   time.Duration
	run       time.Duration
	running   bool
	pausedPos int // in service.paused
	expiryPos int // in Scheduler.paused
}

// wanted reports whether any member is not cancelled.
func (b *batch) wanted() bool {
	for _, q := range b.members {
		if !q.cancelled {
			return true
		}
	}
	return false
}

// rest returns the span of all operators that are left.
func (b *batch) rest() models.Span { return b.span(b.service.Operators) }

// span returns the operators up to end.
func (b *batch) span(end int) models.Span {
	return models.Span{
		Service: b.service.ID, Batch: b.id, Start: b.next, End: end,
		Size: b.size, SeqLen: b.seqLen,
	}
}

// add makes q the last member of the batch.
func (b *batch) add(q *query) {
	q.batch = b
	b.members = append(b.members, q)
	b.size += q.Size
	b.deadline = max(b.deadline, q.Deadline)
}
