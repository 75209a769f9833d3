package query

import (
	"slices"
	"sync/atomic"
	"time"
)

// stats counts what a service did since the daemon started. The codecs count
// requests, the backend counts executions.
type stats struct {
	queries    atomic.Uint64 // sum of their sizes, answered with outputs
	executions atomic.Uint64
	last       atomic.Int64 // unix milliseconds of the last answer with outputs

	success, fail, queue, compute counter
	failures                      [failureKinds]atomic.Uint64 // what fail consists of

	// The spans that ran to their end or were stopped, by the host's clock and,
	// where there is one, by the device's.
	spans, device counter

	turnedAway [len(TurnedAwayFor)]atomic.Uint64
}

// TurnedAwayFor are the reasons for which queries are refused before a scheduler sees
// them though nothing is wrong with their requests. What a scheduler refuses itself it
// counts as well.
var TurnedAwayFor = [...]string{ReasonLoading, ReasonGivenUp, ReasonQuarantined, ReasonNoMemory, ReasonQueueFull, ReasonDraining}

// TurnAway counts a query that does not come to the scheduler, if the reason is one of
// [TurnedAwayFor].
func (s *stats) TurnAway(err *Error) {
	if i := slices.Index(TurnedAwayFor[:], err.Reason); i >= 0 {
		s.turnedAway[i].Add(1)
	}
}

// Counts are the numbers of a stats at one moment, each read for itself.
type Counts struct {
	Queries    uint64    // sum of the sizes of the queries that were answered with outputs
	Executions uint64    // batches that ended
	Last       time.Time // time of the last answer with outputs, zero before

	// Success and Fail are the answers, with the time from arrival to answer.
	// Queue and Compute divide that of Success: up to the first span, and from
	// there to the last.
	Success, Fail, Queue, Compute total

	// Spans ran to their end or were stopped, by the host's clock; Device has
	// the same by the device's clock, where there is one.
	Spans, Device total

	Failures []failures // what Fail consists of

	TurnedAway [len(TurnedAwayFor)]uint64 // by the position of the reason there
}

// total is a number of events and the time they took together.
type total struct {
	Count uint64
	Took  time.Duration
}

// failures are the requests that failed for reasons of one kind.
type failures struct {
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
	case ReasonQueueFull, ReasonNoMemory, ReasonDraining, ReasonLoading, ReasonGivenUp, ReasonDeadline, ReasonCannotFinish:
		return failureRejected
	case ReasonCancelled:
		return failureCancelled
	case ReasonModelFailed, ReasonWorkerLost, ReasonQuarantined:
		return failureBackend
	}
	return failureOther
}

// counter is a total that many goroutines add to.
type counter struct{ count, ns atomic.Uint64 }

func (c *counter) add(d time.Duration) {
	c.count.Add(1)
	c.ns.Add(uint64(max(d, 0)))
}

func (c *counter) read() total { return total{c.count.Load(), time.Duration(c.ns.Load())} }

// Executed counts a batch whose last span has ended, of which so many tensors ran one after
// another.
func (s *stats) Executed(times int) { s.executions.Add(uint64(times)) }

// Ran counts a span: how long it was in the engine, and how long the device took
// by its own clock, 0 if it has none.
func (s *stats) Ran(took, device time.Duration) {
	s.spans.add(took)
	if device > 0 {
		s.device.add(device)
	}
}

// Counts returns the numbers as they are now.
func (s *stats) Counts() Counts {
	c := Counts{
		Queries: s.queries.Load(), Executions: s.executions.Load(),
		Success: s.success.read(), Fail: s.fail.read(), Queue: s.queue.read(), Compute: s.compute.read(),
		Spans: s.spans.read(), Device: s.device.read(),
	}
	if ms := s.last.Load(); ms != 0 {
		c.Last = time.UnixMilli(ms)
	}
	for kind := range s.failures {
		c.Failures = append(c.Failures, failures{failureNames[kind], s.failures[kind].Load()})
	}
	for i := range s.turnedAway {
		c.TurnedAway[i] = s.turnedAway[i].Load()
	}
	return c
}

// failed counts a query that was answered with an error.
func (s *stats) failed(err *Error, took time.Duration) {
	s.fail.add(took)
	s.failures[kindOf(err.Reason)].Add(1)
}

// succeeded counts a query that was answered with outputs.
func (s *stats) succeeded(c *Call, now time.Time) {
	s.queries.Add(uint64(c.Size))
	s.last.Store(now.UnixMilli())
	s.success.add(now.Sub(c.Arrival))
	s.queue.add(c.Reply.Queue)
	s.compute.add(c.Reply.Compute)
}
