package daemon

import (
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/metrics"
)

// Stats counts what a service did since the daemon started. The endpoint
// counts requests, the backend counts executions.
type Stats struct {
	queries    atomic.Uint64 // sum of their sizes, answered with outputs
	executions atomic.Uint64
	last       atomic.Int64 // unix milliseconds of the last answer with outputs

	failures [failureKinds]atomic.Uint64 // of fail

	success, fail                                    total
	queue, computeInput, computeInfer, computeOutput total

	spans, device total // that ran to their end or were stopped, by the host's clock and, where there is one, the device's
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

// total is a number of events and the time they took together.
type total struct{ count, ns atomic.Uint64 }

func (t *total) add(d time.Duration) {
	t.count.Add(1)
	t.ns.Add(uint64(max(d, 0)))
}

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

// clocks returns the sums of Ran.
func (s *Stats) clocks() metrics.Clocks {
	took := func(t *total) time.Duration { return time.Duration(t.ns.Load()) }
	return metrics.Clocks{Spans: s.spans.count.Load(), Engine: took(&s.spans), Device: took(&s.device)}
}

// Executions returns how many batches ended.
func (s *Stats) Executions() uint64 { return s.executions.Load() }

// Succeeded returns how many queries were answered with outputs.
func (s *Stats) Succeeded() uint64 { return s.success.count.Load() }

// Failed returns how many queries were accepted and answered with an error.
func (s *Stats) Failed() uint64 { return s.fail.count.Load() }

// failed counts a query that was answered with an error.
func (s *Stats) failed(err *Error, took time.Duration) {
	s.fail.add(took)
	s.failures[kindOf(err.Reason)].Add(1)
}

func (s *Stats) succeed(size int, now time.Time, took time.Duration, t Timing) {
	s.queries.Add(uint64(size))
	s.last.Store(now.UnixMilli())
	s.success.add(took)
	s.queue.add(t.Queue)
	s.computeInput.add(t.ComputeInput)
	s.computeInfer.add(t.ComputeInfer)
	s.computeOutput.add(t.ComputeOutput)
}
