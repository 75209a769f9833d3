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
	rank      rank          // of its most urgent member that is not cancelled
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

// ran moves a batch on after one of its spans has ended.
func (s *Scheduler) ran(b *batch, so SpanOutcome) {
	if so.Status != SpanDone {
		s.overturn()
	}
	switch {
	case so.Status == SpanFailed:
		s.abandon(b, Failed, ReasonModelFailed)
	case so.Status == SpanLost:
		s.lose(b)
	case so.Reached == b.service.Operators:
		b.service.proved(s.now, b.run)
		s.end(b, Finished, ReasonNone)
	case !b.wanted():
		s.abandon(b, Cancelled, ReasonCancelled)
	case b.service.down:
		s.lose(b)
	case so.Reached == 0:
		s.takeBack(b)
	default:
		b.next = so.Reached
		s.pause(b)
	}
}

// pause makes a batch wait for its next round.
func (s *Scheduler) pause(b *batch) {
	b.rank, b.deadline = s.standing(b, b.rest())
	b.service.paused.push(b)
	s.paused.push(b)
}

func (s *Scheduler) unpause(b *batch) {
	b.service.paused.remove(b.pausedPos)
	s.paused.remove(b.expiryPos)
}

// standing returns the rank and the deadline of a batch of which a span is
// left: those of its most urgent and its latest member that are not cancelled.
// There must be one.
func (s *Scheduler) standing(b *batch, left models.Span) (least rank, latest time.Duration) {
	first := true
	for _, q := range b.members {
		if q.cancelled {
			continue
		}
		r := s.rankOf(q, left)
		if first || r.before(&least) {
			least = r
		}
		if first || q.Deadline > latest {
			latest = q.Deadline
		}
		first = false
	}
	return least, latest
}

// takeBack dissolves a batch that was stopped before it ran an operator.
func (s *Scheduler) takeBack(b *batch) {
	s.release(b)
	for _, q := range b.members {
		if q.cancelled {
			s.answer(q, Cancelled, ReasonCancelled)
			continue
		}
		q.batch = nil
		s.enqueue(q)
	}
	s.pool.putBatch(b)
}

// lose ends a batch whose worker is gone, and queues its members again where
// that makes sense.
func (s *Scheduler) lose(b *batch) {
	for _, q := range b.members {
		switch {
		case q.cancelled:
			s.answer(q, Cancelled, ReasonCancelled)
		case q.retries < s.maxRetries && s.canFinish(q):
			q.retries++
			q.batch = nil
			s.services[q.Service].metrics.Retried++
			s.enqueue(q)
		default:
			s.answer(q, Failed, ReasonWorkerLost)
		}
	}
	s.pool.putBatch(b)
}

// canFinish reports whether a query that ran now, alone, would be in time.
func (s *Scheduler) canFinish(q *query) bool {
	sv := s.services[q.Service]
	end := s.now
	if !q.rank.filler {
		end += s.predict.alone(q.span(sv.Operators)).Latency
	}
	return q.Deadline >= end && q.Deadline > s.now
}

// abandon ends a batch whose worker may hold intermediates.
func (s *Scheduler) abandon(b *batch, result Result, reason Reason) {
	if b.pausedPos >= 0 {
		s.unpause(b)
	}
	s.release(b)
	s.end(b, result, reason)
}

func (s *Scheduler) release(b *batch) {
	s.released.add(Release{Service: b.service.ID, Batch: b.id})
}

// end answers every member of a batch.
func (s *Scheduler) end(b *batch, result Result, reason Reason) {
	for _, q := range b.members {
		if q.cancelled {
			s.answer(q, Cancelled, ReasonCancelled)
		} else {
			s.answer(q, result, reason)
		}
	}
	s.pool.putBatch(b)
}
