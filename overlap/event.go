package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// kind is the kind of an [Event].
type kind uint8

// Each kind of event is followed by the fields of Event that it reads.
const (
	Arrive kind = iota + 1 // Query: a client has sent a query
	Cancel                 // Query.ID: the client of a query has left
	Finish                 // Outcome: a round is over, or an overrun of an earlier one
	Moved                  // Move, Took, Status: a batch has arrived on another device, or was lost on its way
	Down                   // Service, Device: a worker was lost; before the Finish of its round, or that service may be chosen again
	Up                     // Service, Device: a worker is ready
	Load                   // Definition: a worker has loaded a model and knows its operators
	Add                    // Definition: there is a further service
	Change                 // Definition: a service promises something else
	Remove                 // Service: a service of which nothing is left is gone
	Drain                  // no further query is to be accepted
)

var kindNames = [...]string{"unknown", "arrive", "cancel", "finish", "moved", "down", "up", "load", "add", "change", "remove", "drain"}

// String returns the name of a kind, as the decision log has it.
func (k kind) String() string {
	if int(k) >= len(kindNames) {
		k = 0
	}
	return kindNames[k]
}

// Event is something that has happened, for [Scheduler.Step]. The scheduler keeps no part of
// it, so that a caller may use one value for all its events.
type Event struct {
	Kind       kind             `json:"-"`
	Query      models.Query     `json:"query,omitzero"`
	Outcome    models.Outcome   `json:"outcome,omitzero"`
	Move       Move             `json:"move,omitzero"`
	Took       time.Duration    `json:"took,omitempty"`
	Status     models.Status    `json:"as,omitempty"`
	Service    models.ServiceID `json:"sv,omitempty"`
	Device     int              `json:"dev,omitempty"`
	Definition models.Service   `json:"service,omitzero"`
}

// Ready is what the caller of a scheduler is to do next, see [Scheduler.Ready]. Its slices
// belong to the scheduler and are valid until the next call of Ready.
type Ready struct {
	// Answers are the queries that are over, in that order.
	Answers []Answer

	// Released are the batches whose intermediates may be freed. A batch that finished or was
	// lost is not among them.
	Released []Held

	// Stops are the batches that run and whose workers should be asked to stop at the next
	// operator boundary.
	Stops []Held

	// Moves are the batches that are to be moved to another device. Each of them must be
	// followed by one Moved event.
	Moves []Move

	// Round is to be started, nil if there is none. Its device is busy until a Finish event. It
	// is valid until its device is given the next one.
	Round *Round

	// Wake is when Ready is to be called again though nothing happens: now or earlier if there
	// may be more to do immediately, [Never] if only an event can change anything.
	Wake time.Duration
}

// Ended reports whether anything has ended: whether there is more to do than to start a round.
func (r *Ready) Ended() bool {
	return len(r.Answers)+len(r.Released)+len(r.Stops)+len(r.Moves) > 0
}

// Never is a time that does not come.
const Never = forever
