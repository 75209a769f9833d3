package sim

import (
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// observer is called when something happens. Functions that are nil are not called,
// and what the others are given is valid until they return.
type observer struct {
	Round  func(*Round)
	Answer func(*Answer)

	// worker is called when a worker of a service was lost, or is ready again.
	worker func(device int, service models.ServiceID, at time.Duration, ready bool)
}

// Round is a round that is over.
type Round struct {
	Device int
	Number uint64

	// The scheduler gave the round out when it was Chosen. It was sent at Start, and
	// the device worked on the group for Took.
	Chosen time.Duration
	Start  time.Duration
	End    time.Duration
	Took   time.Duration

	Predicted models.Estimate
	Planned   bool

	// Decision is what the scheduler took for the round, by the processor's clock.
	// Since the round before it called the predictor Calls times, about Groups.
	Decision time.Duration
	Calls    int
	Groups   int

	// Spans ran for Queries, by span. The ID of a query is one more than its
	// position.
	Spans   []models.Span
	Queries [][]models.QueryID
	Outcome models.Outcome
}

// Answer is how a query ended: the one at position Number, which came to a device,
// or to none if Device is -1. Refuse is why it was not accepted; of Ended only
// result, reason and time are set then.
type Answer struct {
	Device int
	Number int
	Query  Query
	Due    time.Duration // the deadline
	Ended  overlap.Answer
	Refuse error
	InTime bool
}
