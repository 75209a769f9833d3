package models

import "time"

// Outcome is how a round went: what the executor measured, or a modelled device
// made up, as the scheduler and its journal take it in.
type Outcome struct {
	Round uint64
	Took  time.Duration // from when the round was sent until its last span ended
	Spans []SpanOutcome // one for each span of the group, in any order
}

// SpanOutcome is how one span of a round went.
type SpanOutcome struct {
	Span    Span
	Status  Status
	Reached int           // the next operator to run; the span's End unless it was stopped
	Took    time.Duration // in the engine, as the worker measured it
}

// Status is the way in which a span ended. After SpanLost and SpanFailed the
// batch exists no more.
type Status uint8

// The ways a span ends.
const (
	SpanDone    Status = iota // it ran to its end
	SpanStopped               // it was stopped before operator Reached, where the batch can go on; at 0 its queries queue again
	SpanLost                  // its worker went away or was not there, and its intermediates with it; the queries can be run again
	SpanFailed                // the worker refused it, or the model gave an error
)

// String returns the status in the word that logs, journals and traces use.
func (s Status) String() string {
	if names := [...]string{"done", "stopped", "lost", "failed"}; int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}
