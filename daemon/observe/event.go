// Package observe is what the scheduler goroutine lets others see of its work: one
// [Event] for each thing that happens, told to every [Listener] in that goroutine.
// The listeners are in the rooms below: metrics counts, timeline remembers,
// and [Traces] completes the records of traced queries.
package observe

import (
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Listener is told of events, one after another, by the scheduler goroutine, which
// waits meanwhile: it must not block. An event and what it points to are valid
// until Observe returns.
type Listener interface{ Observe(e *Event) }

// kind is what happened.
type kind uint8

// The kinds of event, and the fields that are set besides Kind.
const (
	Woke       kind = iota // a turn of the goroutine begins: At
	Rested                 // the turn is over: At
	Published              // a status was asked for: what belongs to it is to be copied now
	Accepted               // a query was queued: Call
	Refused                // a query was not queued: At, Call, Err
	TurnedAway             // queries did not come to the scheduler, lately: At, Service, Turned
	Answered               // a query is over: Answer, Call unless it was answered before, Target
	Dispatched             // a round is sent to the workers: Round, Why, Apart, Services
	Ended                  // a round is over: At, Outcome, Gain, Measured unless it could not be sent
	Set                    // a service serves under its name, or has other targets: Service, Fresh
	Dropped                // a service is gone: Service, of which only the ID is set
	Moved                  // a batch has come to another device, or was lost on its way: At, Move, Took, Arrived, Services
)

// Event is something that happened in the scheduler goroutine.
type Event struct {
	Kind kind
	At   time.Duration // since the daemon started

	Call   *query.Call
	Err    error
	Answer *overlap.Answer
	Target time.Duration // the QoS target of the query's service

	Round    *overlap.Round
	Why      *overlap.Explanation
	Apart    Apart
	Services []models.Service // by ID
	Outcome  *models.Outcome
	Gain     Gain
	Measured *executor.Outcome

	Move    *overlap.Move
	Took    time.Duration // from the device that the batch leaves to the other
	Arrived bool

	Turned  *[len(query.TurnedAwayFor)]uint64 // by the position of the reason there
	Service *models.Service
	Fresh   bool // nothing of an earlier service of that name is of interest
}
