package overlap

import (
	"math"
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
		sv.look(math.MinInt64)
		c, ok := sv.head()
		if !ok {
			continue
		}
		heads = append(heads, headOf(c.rank.id, c.rest, c.deadline))
	}
	return heads
}

func headOf(urgent models.QueryID, rest models.Span, deadline time.Duration) Head {
	return Head{
		Service: rest.Service, Batch: rest.Batch, Query: urgent, Deadline: deadline,
		Start: rest.Start, Size: rest.Size, SeqLen: rest.SeqLen,
	}
}
