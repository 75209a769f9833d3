package sim

import (
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Observer is called when something happens. Functions that are nil are not called, and
// what the others are given is valid until they return.
type Observer struct {
	Round  func(*Round)
	Answer func(*Answer)
	Worker func(*Worker)
}

// Worker is a worker that was lost, or is back.
type Worker struct {
	Device  int
	Service models.ServiceID
	At      time.Duration
	Ready   bool
}

// Round is a round that is over.
type Round struct {
	Device    int
	Number    uint64
	Chosen    time.Duration // when the scheduler gave it out
	Start     time.Duration // when it was sent
	End       time.Duration
	Took      time.Duration // that the device worked on the group
	Predicted models.Estimate
	Planned   bool
	Decision  time.Duration // that the scheduler took for it, on the processor's clock
	Calls     int           // of the predictor since the round before
	Groups    int           // that these calls were about
	Spans     []models.Span
	Queries   [][]models.QueryID // of each span; an ID is one more than the query's position
	Outcome   models.Outcome
}

// Answer is how a query ended.
type Answer struct {
	Device int // -1 if it never came to one
	Number int // position of the query
	Query  Query
	Due    time.Duration // its deadline
	Ended  overlap.Answer
	Refuse error // why it was not accepted; then Ended says only when
	InTime bool
}
