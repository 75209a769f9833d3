package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Event reports what happened to the worker of a service. Fields that do not
// belong to its kind are zero.
type Event struct {
	Kind    eventKind
	Service models.ServiceID

	// PID is 0 if there is no process.
	PID int

	// Err is the cause of WorkerLost and WorkerFailed.
	Err error

	// Phase, Done and Total belong to WorkerProgress. Total is 0 while it is not
	// known.
	Phase       string
	Done, Total int64

	// Line belongs to WorkerOutput, and has at most child.LineBytes.
	Line string

	// Info and Took belong to WorkerReady: the model, and the time since the
	// process was started.
	Info *wire.Info
	Took time.Duration

	// Batches belongs to WorkerLost: the IDs of the paused and running batches,
	// sorted.
	Batches []models.BatchID

	// RestartIn belongs to WorkerLost and WorkerFailed. For the latter, 0 means
	// that only Restart starts a worker.
	RestartIn time.Duration
}

// eventKind identifies what happened to a worker.
type eventKind uint8

// The kinds of events, in the order of a worker's life.
const (
	// WorkerStarting: a process was started and loads the model.
	WorkerStarting eventKind = iota

	// WorkerProgress: loading has progressed.
	WorkerProgress

	// WorkerReady: spans of the service can run.
	WorkerReady

	// WorkerOutput: the worker wrote a line to standard output or error.
	WorkerOutput

	// WorkerLost: the worker is gone, with all batches that it held. Err says how
	// its process ended and quotes its last output.
	WorkerLost

	// WorkerFailed: the service failed permanently. It is retried after RestartIn,
	// or when Restart is called.
	WorkerFailed

	// WorkerStopped: the service will have no worker again, because it was removed
	// or the executor closes. It is the last event of a service. PID is that of the
	// worker that was ended, if there was one.
	WorkerStopped
)

// Errors that methods return.
var (
	// ErrClosed is returned after Close. It is also the reason of a span that Close
	// ended.
	ErrClosed = errors.New("executor: closed")

	// ErrOptions is returned by New if there is neither a Command nor an Inside, and
	// by New and Add if an arena is missing or has an invalid size.
	ErrOptions = errors.New("executor: bad options")

	// ErrUnknownService is returned when no service has the given ID.
	ErrUnknownService = errors.New("executor: unknown service")

	// ErrBadSpan is returned if a span of a round is invalid, or two spans belong to
	// one service.
	ErrBadSpan = errors.New("executor: bad span")

	// ErrTooManyRounds is returned when MaxRounds rounds are running or have
	// outcomes that were not received.
	ErrTooManyRounds = errors.New("executor: too many rounds in flight")

	// ErrInUse is returned by New and Add if the ID belongs to another service, even
	// if that is being removed.
	ErrInUse = errors.New("executor: service ID is already in use")

	// ErrLeak is returned by Close if outputs in shared memory were not released.
	ErrLeak = errors.New("executor: shared memory was not released")
)

// Reasons why a worker is lost, and with it its spans.
var (
	// ErrNotReady is the reason of a span whose service has no ready worker.
	ErrNotReady = errors.New("executor: worker is not ready")

	// ErrBatchLost is the reason of a span that continues a batch the worker does
	// not have, because the batch was lost with an earlier worker.
	ErrBatchLost = errors.New("executor: batch was lost with its worker")

	// ErrExited is the reason if the process exited or was killed from outside.
	ErrExited = errors.New("executor: worker exited")

	// ErrKilled is ErrExited for a process that received SIGKILL from outside, for
	// example from the kernel's OOM killer.
	ErrKilled = fmt.Errorf("%w: it was killed", ErrExited)

	// ErrLoadTimeout is the reason if loading took longer than LoadTimeout.
	ErrLoadTimeout = errors.New("executor: loading took too long")

	// ErrLoad is the reason if the worker could not load its model.
	ErrLoad = errors.New("executor: load failed")

	// ErrSpanTimeout is the reason if a span took longer than SpanTimeout.
	ErrSpanTimeout = errors.New("executor: worker hangs")

	// ErrOverrun is the reason if an abandoned span did not end within
	// OverrunGrace.
	ErrOverrun = errors.New("executor: worker was killed after an operator overran")

	// ErrProtocol is the reason if a worker sent something impossible.
	ErrProtocol = errors.New("executor: worker broke the protocol")

	// ErrStart is the reason if no process could be started.
	ErrStart = errors.New("executor: worker did not start")

	// ErrHeld is the reason if Hold ended the worker.
	ErrHeld = errors.New("executor: worker was stopped together with others")

	// ErrRemoved is the reason if Remove ended the worker. Remove returns it for a
	// service that is already being removed.
	ErrRemoved = errors.New("executor: service was removed")

	// ErrRestartLimit is the reason if workers were lost too often, so that the
	// service failed permanently.
	ErrRestartLimit = errors.New("executor: worker exited too often")

	// ErrNoRoom is the reason if the service failed permanently because its model
	// does not fit in the memory of the device.
	ErrNoRoom = errors.New("executor: no memory left on the device")
)
