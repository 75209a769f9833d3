package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Event is what happened to the worker of a service. What does not belong to its
// kind is zero.
type Event struct {
	Kind    EventKind
	Service models.ServiceID
	PID     int   // 0 without a process
	Err     error // the cause of WorkerLost and WorkerFailed

	Phase       string        // WorkerProgress: what is being loaded
	Done, Total int64         // WorkerProgress; Total is 0 while it is not known
	Line        string        // WorkerOutput: at most child.LineBytes
	Info        *wire.Info    // WorkerReady: the model
	Took        time.Duration // WorkerReady: since the start of the process

	Batches   []models.BatchID // WorkerLost: paused or running, in order
	RestartIn time.Duration    // WorkerLost; WorkerFailed, where it is 0 if only Restart starts another
}

// EventKind is what happened to a worker.
type EventKind uint8

// The kinds of events, in the order of a worker's life.
const (
	// WorkerStarting: a process was started and loads the model.
	WorkerStarting EventKind = iota

	// WorkerProgress: loading has come further.
	WorkerProgress

	// WorkerReady: spans of the service can be run.
	WorkerReady

	// WorkerOutput: the worker wrote a line to standard output or error.
	WorkerOutput

	// WorkerLost: the worker is gone, with everything it held. Err says how its
	// process ended and quotes the last that it wrote.
	WorkerLost

	// WorkerFailed: the service is given up until RestartIn has passed, or Restart is
	// called.
	WorkerFailed

	// WorkerStopped: the service has no worker any more, because it was removed or
	// the executor closes. It is the last event of a service; PID is that of the
	// worker that was ended for it.
	WorkerStopped
)

// Errors of calls.
var (
	// ErrClosed is returned after Close, and is the reason of a span that
	// Close ended.
	ErrClosed = errors.New("executor: closed")

	// ErrOptions is returned by New when there is neither a command nor an Inside,
	// and by Add when an arena is missing or cannot be had.
	ErrOptions = errors.New("executor: bad options")

	// ErrUnknownService is returned when no service has the given ID.
	ErrUnknownService = errors.New("executor: unknown service")

	// ErrBadSpan is returned when a span of a round makes no sense, or two
	// spans are of one service.
	ErrBadSpan = errors.New("executor: bad span")

	// ErrTooManyRounds is returned when MaxRounds rounds run or have outcomes
	// that were not received.
	ErrTooManyRounds = errors.New("executor: too many rounds in flight")

	// ErrInUse is returned by New and Add when there is a service with this ID, or
	// one that is being removed: wait until that is gone, or take another ID.
	ErrInUse = errors.New("executor: service ID is in use")

	// ErrLeak is returned by Close when shared memory is still in use.
	ErrLeak = errors.New("executor: shared memory was not given back")
)

// Reasons for which a worker, and with it a span, is lost.
var (
	// ErrNotReady is the reason of a span whose service has no worker that is
	// ready.
	ErrNotReady = errors.New("executor: worker is not ready")

	// ErrBatchLost is the reason of a span that goes on with a batch that the
	// worker does not have, because it was lost with an earlier worker.
	ErrBatchLost = errors.New("executor: batch was lost with its worker")

	// ErrExited is the reason when the process ended by itself or was killed
	// from outside.
	ErrExited = errors.New("executor: worker exited")

	// ErrKilled is ErrExited of a process that was sent SIGKILL from outside, as by
	// the kernel where memory runs out.
	ErrKilled = fmt.Errorf("%w: it was killed", ErrExited)

	// ErrLoadTimeout is the reason when loading took longer than LoadTimeout.
	ErrLoadTimeout = errors.New("executor: loading took too long")

	// ErrLoad is the reason when the worker could not load its model.
	ErrLoad = errors.New("executor: load failed")

	// ErrSpanTimeout is the reason when a span took longer than SpanTimeout.
	ErrSpanTimeout = errors.New("executor: worker hangs")

	// ErrOverrun is the reason when a span did not end for which nobody waited
	// any more.
	ErrOverrun = errors.New("executor: worker was ended for a span that overran")

	// ErrProtocol is the reason when a worker sent what cannot be.
	ErrProtocol = errors.New("executor: worker broke the protocol")

	// ErrStart is the reason when no process could be started.
	ErrStart = errors.New("executor: worker did not start")

	// ErrHeld is the reason when Hold ended the worker.
	ErrHeld = errors.New("executor: worker was ended with others")

	// ErrRemoved is the reason when Remove ended the worker. Remove returns it
	// for a service that is being removed already.
	ErrRemoved = errors.New("executor: service is removed")

	// ErrRestartLimit is the reason when a service was given up.
	ErrRestartLimit = errors.New("executor: worker was lost too often")

	// ErrNoRoom is the reason when a service was given up because its model
	// does not fit the memory of the device.
	ErrNoRoom = errors.New("executor: no room on the device")
)
