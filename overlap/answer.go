package overlap

import (
	"errors"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Answer is the end of an accepted query: what became of it, why, and where its
// time went.
type Answer struct {
	Query     models.QueryID
	Service   models.ServiceID
	Result    Result
	Reason    Reason         // ReasonNone if it finished
	Batch     models.BatchID // the last one it ran in, 0 if it never ran
	BatchSize int            // the size of Batch
	Device    int            // that Batch was on
	Retries   int            // times it was queued again after a lost worker
	At        time.Duration  // when it ended
	Started   time.Duration  // when the first span of its batch started
	Queue     time.Duration  // it waited before that, or until it ended
	Run       time.Duration  // the time the spans of its batch took together

	// InUse is set if the worker still uses the tensors of the query, because its
	// batch is an overrun: they must stay until the span has ended.
	InUse bool
}

// Result is what became of a query.
type Result uint8

// The ways a query ends.
const (
	Finished  Result = iota // its outputs are there, even if too late
	Dropped                 // it was not run to its end, for lack of time
	Failed                  // its worker was lost, or its model failed
	Cancelled               // its client left
)

func (r Result) String() string {
	return [...]string{"finished", "dropped", "failed", "cancelled"}[r]
}

// Reason is why a query was not accepted or did not finish.
type Reason uint8

// The reasons. Their names, given by String, are for machines and stay.
const (
	ReasonNone           Reason = iota
	ReasonQueueFull             // its service's queue was full
	ReasonDeadlinePassed        // its deadline passed while it waited
	ReasonCannotFinish          // it was predicted to end after its deadline
	ReasonWorkerLost            // its worker died and it could not run again in time
	ReasonModelFailed           // the model gave an error
	ReasonCancelled             // its client left
	ReasonDraining              // the daemon shuts down

	// ReasonCount is the number of reasons.
	ReasonCount
)

var reasonNames = [ReasonCount]string{
	"none", "queue_full", "deadline_passed", "cannot_finish",
	"worker_lost", "model_failed", "cancelled", "draining",
}

func (r Reason) String() string { return reasonNames[r] }

// ReasonOf returns the reason behind an error of Arrive, ReasonNone for an
// error that is the caller's fault.
func ReasonOf(err error) Reason {
	switch {
	case errors.Is(err, ErrQueueFull):
		return ReasonQueueFull
	case errors.Is(err, ErrExpired):
		return ReasonDeadlinePassed
	case errors.Is(err, ErrDraining):
		return ReasonDraining
	}
	return ReasonNone
}
