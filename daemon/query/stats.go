package query

import (
	"slices"
	"sync/atomic"
	"time"
)

// stats holds the counters of a service since the daemon started. The codecs count
// requests, the backend counts executions. All counters are atomic and are read one by one,
// so a snapshot need not be consistent.
type stats struct {
	// queries sums the sizes of the queries answered with outputs.
	queries    atomic.Uint64
	executions atomic.Uint64

	// last is the time of the last answer with outputs, in Unix milliseconds.
	last atomic.Int64

	success, fail, queue, compute counter

	// failures divides fail by kind.
	failures [failureKinds]atomic.Uint64

	// Operator ranges that completed or were stopped, by the host's clock and, if the
	// device has one, by the device's.
	spans, device counter

	// turnedAway is indexed like TurnedAwayFor.
	turnedAway [len(TurnedAwayFor)]atomic.Uint64
}

// TurnedAwayFor lists the reasons for which a valid query may be rejected before the
// scheduler sees it. The scheduler counts its own rejections.
var TurnedAwayFor = [...]string{
	ReasonLoading, ReasonUnloaded, ReasonGivenUp, ReasonQuarantined, ReasonNoMemory, ReasonQueueFull, ReasonDraining, ReasonDeadline,
}

// TurnAway counts a query that did not reach the scheduler, if its reason is in
// [TurnedAwayFor].
func (s *stats) TurnAway(err *Error) {
	if i := slices.Index(TurnedAwayFor[:], err.Reason); i >= 0 {
		s.turnedAway[i].Add(1)
	}
}

// Counts is a snapshot of the counters of a service.
type Counts struct {
	// Queries sums the sizes of the queries answered with outputs.
	Queries uint64

	// Executions counts completed batches.
	Executions uint64

	// Last is the time of the last answer with outputs, or zero.
	Last time.Time

	// Success and Fail count answers, with the time from arrival to answer. Queue and
	// Compute divide the time of Success at the first operator range.
	Success, Fail, Queue, Compute total

	// Spans counts operator ranges that completed or were stopped, by the host's clock.
	// Device has the same by the device's clock, if it has one.
	Spans, Device total

	// Failures divides Fail by kind.
	Failures []failures

	// TurnedAway is indexed like [TurnedAwayFor].
	TurnedAway [len(TurnedAwayFor)]uint64
}

// total is a number of events and the sum of their durations.
type total struct {
	Count uint64
	Took  time.Duration
}

// failures counts the failed requests of one kind: REJECTED, CANCELED, BACKEND or OTHER, as
// in Triton's metrics.
type failures struct {
	Kind  string
	Count uint64
}

// failureKind classifies a failed request, as Triton's metrics do.
type failureKind int

const (
	failureRejected  failureKind = iota // no memory, no place in the queue or no time
	failureCancelled                    // the client disconnected
	failureBackend                      // the model or its worker failed
	failureOther
	failureKinds
)

var failureNames = [failureKinds]string{"REJECTED", "CANCELED", "BACKEND", "OTHER"}

// kindOf returns the kind of a Reason constant.
func kindOf(reason string) failureKind {
	switch reason {
	case ReasonQueueFull, ReasonNoMemory, ReasonDraining, ReasonLoading, ReasonUnloaded, ReasonGivenUp, ReasonDeadline, ReasonCannotFinish:
		return failureRejected
	case ReasonCancelled:
		return failureCancelled
	case ReasonModelFailed, ReasonWorkerLost, ReasonQuarantined:
		return failureBackend
	}
	return failureOther
}

// counter is a total that is safe for concurrent use.
type counter struct{ count, ns atomic.Uint64 }

func (c *counter) add(d time.Duration) {
	c.count.Add(1)
	c.ns.Add(uint64(max(d, 0)))
}

func (c *counter) read() total { return total{c.count.Load(), time.Duration(c.ns.Load())} }

// Executed counts a completed batch. times is more than 1 if its queries ran back to back,
// each as an execution of its own.
func (s *stats) Executed(times int) { s.executions.Add(uint64(times)) }

// Ran counts one operator range. took is its time in the engine by the host's clock, device
// its time by the device's clock, 0 if there is none.
func (s *stats) Ran(took, device time.Duration) {
	s.spans.add(took)
	if device > 0 {
		s.device.add(device)
	}
}

// Counts returns a snapshot of the counters.
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
