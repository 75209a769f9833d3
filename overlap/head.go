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

func headOf(urgent models.QueryID, rest models.Span, deadline time.Duration) Head {
	return Head{
		Service: rest.Service, Batch: rest.Batch, Query: urgent, Deadline: deadline,
		Start: rest.Start, Size: rest.Size, SeqLen: rest.SeqLen,
	}
}
