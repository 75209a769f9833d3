package models

import (
	"fmt"
	"time"
)

// QueryID identifies a query. IDs are unique for the lifetime of the daemon.
type QueryID uint64

// BatchID identifies a batch. IDs are unique for the lifetime of the daemon.
type BatchID uint64

// ServiceID is the index of a service in the configuration.
type ServiceID int

// Query is one inference request. All times are durations since an epoch that the caller of
// the scheduler chooses. They come from a monotonic clock, so that a step of the wall clock
// has no effect.
type Query struct {
	ID      QueryID   `json:"id"`
	Service ServiceID `json:"sv,omitempty"`
	// Size is the client's own batch dimension, at least 1.
	Size int `json:"n,omitempty"`
	// SeqLen is the sequence length, or 0 if the model has none.
	SeqLen int `json:"seq,omitempty"`
	// Shape is a hash of all input shapes without their batch dimension. Only queries with
	// equal hashes can share a batch.
	Shape uint64 `json:"shape,omitempty,string"`
	// Arrival is when the query was accepted. After Deadline its answer has no value.
	Arrival  time.Duration `json:"arrived,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"`
	// Priority is 0 for none. Otherwise 1 is the highest priority.
	Priority int `json:"priority,omitempty"`
	// Alone keeps the query out of batches with other queries.
	Alone bool `json:"alone,omitempty"`

	// Accuracy is the least accuracy of the variant that may answer. If Fixed is set, only the
	// service that the query names may answer.
	Accuracy float64 `json:"accuracy,omitempty"`
	Fixed    bool    `json:"fixed,omitempty"`
}

// Span is the operator range [Start, End) of one batch, run without interruption.
type Span struct {
	Service ServiceID `json:"sv"`
	Batch   BatchID   `json:"b"`
	Start   int       `json:"from,omitempty"`
	End     int       `json:"to"`
	// Size is the size of one tensor of the batch: the sum over its queries or, in back-to-back
	// execution, the size of each query.
	Size   int `json:"n"`
	SeqLen int `json:"seq,omitempty"`
	// Share is how many units of its device the span runs on, 0 for all of them.
	Share int `json:"share,omitempty"`
}

// Len returns the number of operators in the span.
func (s Span) Len() int { return s.End - s.Start }

// Times returns how many times a worker executes the span for a number of queries. More queries
// than its size do not fit in one tensor, so they run back to back: each by itself, from the
// first operator to the last. Otherwise it returns 1.
func (s Span) Times(queries int) int {
	if queries > s.Size {
		return queries
	}
	return 1
}

// Group is an operator group: spans of different batches, at most one per service, that run
// together in one round.
type Group struct {
	Spans []Span `json:"g"`
	// Beside are the services whose spans run on other units of the device when the group starts.
	Beside []ServiceID `json:"beside,omitempty"`
}

// Estimate is a predictor's estimate for an operator group.
type Estimate struct {
	// Latency is the median latency of the group, or 0 if unknown.
	Latency time.Duration `json:"latency"`
	// Bound is the p99 latency of the group. It is at least Latency, or 0 if unknown.
	Bound time.Duration `json:"bound"`
}

// Outcome is the result of a round, as an executor measured it or a device model computed it.
// The scheduler and its journal take it as input.
type Outcome struct {
	Round uint64 `json:"round"`
	// Device is the index in the pool of the device that ran the round.
	Device int `json:"dev,omitempty"`
	// Took is the time from sending the round until its last span ended.
	Took time.Duration `json:"took"`
	// Latency is the latency of the group in the sense of predictions, or 0 if it was not
	// measured.
	Latency time.Duration `json:"latency,omitempty"`
	// Spans has one element for each span of the group, in any order.
	Spans []SpanOutcome `json:"s"`
}

// SpanOutcome is the result of one span of a round.
type SpanOutcome struct {
	Span   Span   `json:"span"`
	Status Status `json:"as"`
	// Reached is the next operator to run. It is the span's End unless the span was stopped.
	Reached int `json:"to"`
	// Took is the time in the engine, as the worker measured it.
	Took time.Duration `json:"took"`
}

// Status says how a span left its round. After SpanLost, SpanFailed and SpanCrashed the batch
// no longer exists.
type Status uint8

// The ways in which a span leaves its round.
const (
	// SpanDone means that the span ran to its end.
	SpanDone Status = iota
	// SpanStopped means that the span was stopped before operator Reached, where the batch can
	// resume. If Reached is 0, its queries are queued again.
	SpanStopped
	// SpanLost means that the worker was absent or went away, and the intermediates with it. The
	// queries can run again.
	SpanLost
	// SpanFailed means that the worker rejected the span or the model returned an error.
	SpanFailed
	// SpanCrashed means that the worker died while it ran this span, which may be the cause.
	SpanCrashed
	// SpanOverrun means that the span exceeded its limit and keeps running alongside later
	// rounds. Its final outcome is reported later.
	SpanOverrun
)

// String returns the status as logs, journals and traces write it.
func (s Status) String() string {
	if names := [...]string{"done", "stopped", "lost", "failed", "crashed", "overrun"}; int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. "unknown" stands for a status that does not
// exist, which a scheduler may be given.
func (s *Status) UnmarshalText(text []byte) error {
	for *s = SpanDone; *s <= SpanOverrun+1; *s++ {
		if s.String() == string(text) {
			return nil
		}
	}
	return fmt.Errorf("status %q is not known", text)
}

// Tensor is an input, an output or an intermediate value of a query, on its way through the
// daemon and its workers. The elements are in row-major order and little endian. Each
// element of strings is preceded by its length in four little-endian bytes.
type Tensor struct {
	Type  DataType
	Shape []int64

	// Data holds the elements. It is nil where a process only passes the tensor on.
	Data []byte

	// Offset and Bytes say where the elements lie in memory that the daemon shares with
	// workers.
	Offset int64
	Bytes  int64
}
