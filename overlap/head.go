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
		if sv.down {
			continue
		}
		var paused *batch
		if sv.paused.len() > 0 {
			paused = sv.paused.top()
		}
		if sv.queue.len() > 0 && sv.paused.len() < MaxPaused {
			if q := sv.queue.top(); paused == nil || q.rank.before(&paused.rank) {
				heads = append(heads, Head{sv.ID, 0, q.ID, q.Deadline, 0, q.Size, q.SeqLen})
				continue
			}
		}
		if b := paused; b != nil {
			heads = append(heads, Head{sv.ID, b.id, b.rank.id, b.deadline, b.next, b.size, b.seqLen})
		}
	}
	return heads
}
