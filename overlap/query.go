package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// query is an accepted query until it is answered.
type query struct {
	models.Query
	rank      rank
	alone     time.Duration // that it was predicted to take alone when it was queued, 0 where nobody asked
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
