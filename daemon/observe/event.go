// Package observe is how the scheduler goroutine makes its work visible. It emits one
// [Event] for each thing that happens and passes it to every [Listener] in the same
// goroutine. The listeners are what [NewTraces] returns, which completes the records of traced queries, and
// those of the packages below: metrics counts and timeline remembers.
package observe

import (
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Listener receives events, one after another, in the scheduler goroutine. The goroutine
// waits meanwhile, so Observe must not block. An event and what it points to are valid
// until Observe returns.
type Listener interface{ Observe(e *Event) }

// kind says what happened.
type kind uint8

// Kinds of events, with the fields that are set besides Kind.
const (
	Woke       kind = iota // a turn of the goroutine begins: At
	Rested                 // the turn has ended: At
	Published              // a status was requested: listeners copy what belongs to it
	Accepted               // a query was queued: Call
	Refused                // a query was rejected: At, Call, Err
	TurnedAway             // queries were rejected before they reached the scheduler since the last such event: At, Service, Turned
	Answered               // a query has ended: Answer, Call unless it was answered before, Target
	Dispatched             // a round was sent to the workers: Round, Why, Apart, Services
	Ended                  // a round has ended: At, Outcome, Gain, Measured unless it could not be sent
	Set                    // a service was added or its targets have changed: Service, Fresh
	Dropped                // a service was removed: Service, of which only the ID is set
	Moved                  // a batch has moved to another device, or was lost on the way: At, Move, Took, Arrived, Services
)

// Event is something that happened in the scheduler goroutine. At is the time since the
// daemon started.
type Event struct {
	Kind kind
	At   time.Duration

	Call   *query.Call
	Err    error
	Answer *overlap.Answer

	// Target is the QoS target of the query's service.
	Target time.Duration

	Round *overlap.Round
	Why   *overlap.Explanation
	Apart Apart

	// Services is indexed by ID.
	Services []models.Service
	Outcome  *models.Outcome
	Gain     Gain
	Measured *executor.Outcome

	// Part is the time of the round as that of the whole device: less than Outcome.Took if it ran on
	// some of its units.
	Part time.Duration

	Move *overlap.Move

	// Took is the duration of the move. Arrived is false if the batch was lost.
	Took    time.Duration
	Arrived bool

	// Turned is indexed like [query.TurnedAwayFor].
	Turned  *[len(query.TurnedAwayFor)]uint64
	Service *models.Service

	// Fresh is set if nothing of an earlier service of that name should be kept.
	Fresh bool
}
