package models

import (
	"time"
)

// QueryID names a query for as long as the daemon runs.
type QueryID uint64

// BatchID names a batch for as long as the daemon runs.
type BatchID uint64

// ServiceID is the position of a service in the configuration.
type ServiceID int

// Query is one inference request. All times are durations since one epoch
// that the caller of the scheduler chooses, read from a monotonic clock, so
// that a step of the wall clock changes nothing.
type Query struct {
	ID       QueryID
	Service  ServiceID
	Size     int           // the client's own batch dimension, at least 1
	SeqLen   int           // sequence length, 0 if the model has none
	Shape    uint64        // hash of all input shapes without their batch dimension; queries merge only if equal
	Arrival  time.Duration // when it was accepted
	Deadline time.Duration // when its answer is worthless
	Priority int           // 0 is none; otherwise 1 is the highest
	Alone    bool          `json:",omitempty"` // it runs in no batch with others

	// Of the variants of its service, one with this accuracy at least is to answer, or, if
	// it is fixed, none but the service that it names.
	Accuracy float64 `json:",omitempty"`
	Fixed    bool    `json:",omitempty"`
}

// Span is operators [Start, End) of one batch, run without interruption.
type Span struct {
	Service ServiceID
	Batch   BatchID
	Start   int
	End     int
	Size    int // the size of the batch: the sum over its queries
	SeqLen  int

	// Series is set if the queries of the batch, each of size 1, run one after another and
	// not as one tensor, all from the first operator to the last.
	Series bool `json:",omitempty"`
}

// Len returns the number of operators in the span.
func (s Span) Len() int { return s.End - s.Start }

// Once returns what runs at once of a span, and how many times it does: of a series one of
// its queries, else all of it.
func (s Span) Once() (once Span, times int) {
	if !s.Series {
		return s, 1
	}
	times, s.Size, s.Series = s.Size, 1, false
	return s, times
}

// Group is an operator group: spans of different batches, at most one per
// service, that run together in one round.
type Group struct {
	Spans []Span
}

// Estimate is a predictor's answer about an operator group.
type Estimate struct {
	Latency time.Duration // what the group takes in the middle of its runs, 0 if unknown
	Bound   time.Duration // what 99 of 100 of its runs stay within; at least Latency, 0 if unknown
}

// Outcome is how a round went: what the executor measured, or a modelled device
// made up, as the scheduler and its journal take it in.
type Outcome struct {
	Round   uint64
	Device  int           // of the pool, on which it ran
	Took    time.Duration // from when the round was sent until its last span ended
	Latency time.Duration // of its group, as predictions are of, 0 if nobody measured it
	Spans   []SpanOutcome // one for each span of the group, in any order
}

// SpanOutcome is how one span of a round went.
type SpanOutcome struct {
	Span    Span
	Status  Status
	Reached int           // the next operator to run; the span's End unless it was stopped
	Took    time.Duration // in the engine, as the worker measured it
}

// Status is the way in which a span left its round. After SpanLost, SpanFailed and
// SpanCrashed the batch exists no more.
type Status uint8

// The ways a span leaves its round.
const (
	SpanDone    Status = iota // it ran to its end
	SpanStopped               // it was stopped before operator Reached, where the batch can go on; at 0 its queries queue again
	SpanLost                  // its worker went away or was not there, and its intermediates with it; the queries can be run again
	SpanFailed                // the worker refused it, or the model gave an error
	SpanCrashed               // its worker died while it ran this very span, which may be why
	SpanOverrun               // it has exceeded its limit and runs on beside other rounds; how it ends comes later
)

// String returns the status in the word that logs, journals and traces use.
func (s Status) String() string {
	if names := [...]string{"done", "stopped", "lost", "failed", "crashed", "overrun"}; int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}
