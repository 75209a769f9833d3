package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Cancel gives up a query whose client has left. running tells that the batch
// of the query runs now; if nobody else wants that batch, stop names it, and
// its worker should be asked to stop at the next operator boundary. A query
// that is unknown or answered is left alone.
func (s *Scheduler) Cancel(now time.Duration, id models.QueryID) (stop models.BatchID, running bool) {
	s.clock(now)
	q := s.index.get(id)
	if q == nil || q.cancelled {
		return 0, false
	}
	s.overturn()
	b := q.batch
	if b == nil {
		s.answer(s.dequeue(q), Cancelled, ReasonCancelled)
		return 0, false
	}
	q.cancelled = true
	switch wanted := b.wanted(); {
	case b.running && !wanted:
		return b.id, true
	case b.running:
		return 0, true
	case !wanted:
		s.abandon(b, Cancelled, ReasonCancelled)
	default:
		b.rank, b.deadline = s.standing(b, b.rest())
		b.service.paused.fix(b.pausedPos)
		s.paused.fix(b.expiryPos)
	}
	return 0, false
}
