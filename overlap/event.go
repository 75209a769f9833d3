package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Kind is the kind of an [Event].
type Kind uint8

// Each kind of event is followed by the fields of Event that it reads.
const (
	Arrive Kind = iota + 1 // Query: a client has sent a query
	Cancel                 // Query.ID: the client of a query has left
	Finish                 // Outcome: a round is over, or an overrun of an earlier one
	Moved                  // Move, Took, Status: a batch has arrived on another device, or was lost on its way
	Down                   // Service, Device: a worker was lost
	Up                     // Service, Device: a worker is ready
	Load                   // Definition: a worker has loaded a model and knows its operators
	Add                    // Definition: there is a further service
	Change                 // Definition: a service promises something else
	Remove                 // Service: a service of which nothing is left is gone
	Drain                  // no further query is to be accepted
)

var kindNames = [...]string{"unknown", "arrive", "cancel", "finish", "moved", "down", "up", "load", "add", "change", "remove", "drain"}

// String returns the name of a kind, as the decision log has it.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		k = 0
	}
	return kindNames[k]
}

// Event is something that has happened, for [Scheduler.Step]. The scheduler keeps no part of
// it, so that a caller may use one value for all its events.
type Event struct {
	Kind       Kind             `json:"-"`
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

// Step records an event. An error means that the scheduler has refused it; then nothing has
// changed, unless the method of that name says otherwise.
func (s *Scheduler) Step(now time.Duration, e *Event) error {
	switch e.Kind {
	case Arrive:
		return s.Arrive(now, e.Query)
	case Cancel:
		if stop, _ := s.Cancel(now, e.Query.ID); stop.Batch != 0 {
			s.stops.add(stop)
		}
	case Finish:
		return s.Finish(now, e.Outcome)
	case Moved:
		return s.Moved(now, e.Move, e.Took, e.Status)
	case Down:
		s.Down(now, e.Service, e.Device)
	case Up:
		s.Up(now, e.Service, e.Device)
	case Load:
		return s.Load(now, e.Definition)
	case Add:
		return s.Add(now, e.Definition)
	case Change:
		return s.Change(now, e.Definition)
	case Remove:
		return s.Remove(now, e.Service)
	case Drain:
		s.Drain(now)
	default:
		return ErrUnknownEvent
	}
	return nil
}

// Ready returns what has ended since the last call, and if nothing has, decides what the next
// free device runs. So a caller answers first and starts rounds then: it calls Ready until
// Wake is later than now.
func (s *Scheduler) Ready(now time.Duration) (r Ready) {
	ended := s.Ended()
	if !ended {
		if _, ok := s.Next(now); ok {
			r.Round = &s.last.device.round
		}
	}
	r.Answers, r.Released, r.Stops, r.Moves = s.Answers(), s.Released(), s.Stops(), s.Moves()
	at, ok := s.Wake()
	switch {
	case r.Round != nil || ended:
		r.Wake = now
	case ok:
		r.Wake = at
	default:
		r.Wake = Never
	}
	return r
}

// Advance decides ahead, for the round that is predicted to end first, while the caller has
// nothing else to do: after it has started what Ready has returned.
func (s *Scheduler) Advance(now time.Duration) { s.Plan(now) }

// Planned reports whether a round was decided ahead that no event has overturned. Such a plan is
// no part of a [Snapshot].
func (s *Scheduler) Planned() bool { return s.planned }

// Routed reports whether Ready may change what waits for a pipeline without returning anything.
func (s *Scheduler) Routed() bool { return len(s.piped)+len(s.onWay) > 0 }
