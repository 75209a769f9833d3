package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Head is the most urgent work of one service: a paused batch, or the query
// that its next batch is formed around.
type Head struct {
	Service  models.ServiceID
	Batch    models.BatchID // 0 if it is to be formed
	Query    models.QueryID // the most urgent
	Deadline time.Duration
	Start    int // the operator to run next
	Size     int
	SeqLen   int
}

// Heads appends the most urgent work of every service that has any and could
// run it: what a decision would be about. What is past its deadline, and will
// be dropped, is among it.
func (s *Scheduler) Heads(heads []Head) []Head {
	for _, sv := range s.services {
		paused, r, ok := sv.head()
		switch {
		case !ok:
		case paused != nil:
			heads = append(heads, Head{sv.ID, paused.id, r.id, paused.deadline, paused.next, paused.size, paused.seqLen})
		default:
			q := sv.queue.top()
			heads = append(heads, Head{sv.ID, 0, q.ID, q.Deadline, 0, q.Size, q.SeqLen})
		}
	}
	return heads
}
