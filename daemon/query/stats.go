package query

import (
	"sync/atomic"
	"time"
)

// Stats counts what a service did since the daemon started. The codecs count
// requests, the backend counts executions.
type Stats struct {
	queries    atomic.Uint64 // sum of their sizes, answered with outputs
	executions atomic.Uint64
	last       atomic.Int64 // unix milliseconds of the last answer with outputs

	success, fail, queue, compute total
	failures                      [failureKinds]atomic.Uint64 // what fail consists of

	// The spans that ran to their end or were stopped, by the host's clock and,
	// where there is one, by the device's.
	spans, device total
}

// Counts are the numbers of a Stats at one moment, each read for itself.
type Counts struct {
	Queries    uint64    // sum of the sizes of the queries that were answered with outputs
	Executions uint64    // batches that ended
	Last       time.Time // of the last answer with outputs, zero before

	// Success and Fail are the answers, with the time from arrival to answer.
	// Queue and Compute divide that of Success: up to the first span, and from
	// there to the last.
	Success, Fail, Queue, Compute Total

	// Spans ran to their end or were stopped, by the host's clock; Device has
	// the same by the device's clock, where there is one.
	Spans, Device Total

	Failures []Failures // what Fail consists of
}

// Total is a number of events and the time they took together.
type Total struct {
	Count uint64
	Took  time.Duration
}

// Failures are the requests that failed for reasons of one kind.
type Failures struct {
	Kind  string // REJECTED, CANCELED, BACKEND or OTHER, as Triton's metrics divide them
	Count uint64
}

// failureKind is why a request failed, as Triton's metrics divide it.
type failureKind int

const (
	failureRejected  failureKind = iota // there was no room or no time for it
	failureCancelled                    // its client left
	failureBackend                      // the model or its worker failed
	failureOther
	failureKinds
)

var failureNames = [failureKinds]string{"REJECTED", "CANCELED", "BACKEND", "OTHER"}

func kindOf(reason string) failureKind {
	switch reason {
	case ReasonQueueFull, ReasonNoMemory, ReasonDraining, ReasonLoading, ReasonDeadline, ReasonCannotFinish:
		return failureRejected
	case ReasonCancelled:
		return failureCancelled
	case ReasonModelFailed, ReasonWorkerLost:
		return failureBackend
	}
	return failureOther
}

// total is a Total that many goroutines add to.
type total struct{ count, ns atomic.Uint64 }

func (t *total) add(d time.Duration) {
	t.count.Add(1)
	t.ns.Add(uint64(max(d, 0)))
}

func (t *total) read() Total { return Total{t.count.Load(), time.Duration(t.ns.Load())} }

// Executed counts one batch whose last span has ended.
func (s *Stats) Executed() { s.executions.Add(1) }

// Ran counts a span: how long it was in the engine, and how long the device took
// by its own clock, 0 if it has none.
func (s *Stats) Ran(took, device time.Duration) {
	s.spans.add(took)
	if device > 0 {
		s.device.add(device)
	}
}

// Counts returns the numbers as they are now.
func (s *Stats) Counts() Counts {
	c := Counts{
		Queries: s.queries.Load(), Executions: s.executions.Load(),
		Success: s.success.read(), Fail: s.fail.read(), Queue: s.queue.read(), Compute: s.compute.read(),
		Spans: s.spans.read(), Device: s.device.read(),
	}
	if ms := s.last.Load(); ms != 0 {
		c.Last = time.UnixMilli(ms)
	}
	for kind := range s.failures {
		c.Failures = append(c.Failures, Failures{failureNames[kind], s.failures[kind].Load()})
	}
	return c
}

// failed counts a query that was answered with an error.
func (s *Stats) failed(err *Error, took time.Duration) {
	s.fail.add(took)
	s.failures[kindOf(err.Reason)].Add(1)
}

// succeeded counts a query that was answered with outputs.
func (s *Stats) succeeded(c *Call, now time.Time) {
	s.queries.Add(uint64(c.Size))
	s.last.Store(now.UnixMilli())
	s.success.add(now.Sub(c.Arrival))
	s.queue.add(c.Reply.Queue)
	s.compute.add(c.Reply.Compute)
}
