package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

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
