package executor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Event is one of the Worker… types of this package.
type Event interface{ event() }

// WorkerStarting says that a process was started.
type WorkerStarting struct {
	Service models.ServiceID
	PID     int
}

// WorkerProgress says how far a worker has come with loading.
type WorkerProgress struct {
	Service     models.ServiceID
	Phase       string
	Done, Total int64 // Total is 0 if it is not known
}

// WorkerReady says that spans of the service can be run.
type WorkerReady struct {
	Service models.ServiceID
	PID     int
	Info    wire.Info
	Took    time.Duration // since the start of the process
}

// WorkerOutput is a line that a worker wrote to standard output or error.
type WorkerOutput struct {
	Service models.ServiceID
	Line    string // at most child.LineBytes
}

// WorkerLost says that a worker is gone, with everything it held.
type WorkerLost struct {
	Service   models.ServiceID
	PID       int
	Err       *LostError
	Batches   []models.BatchID // that were paused or running
	RestartIn time.Duration
}

// WorkerFailed says that a service is given up until Restart is called.
type WorkerFailed struct {
	Service models.ServiceID
	Err     error
}

// WorkerStopped says that a service has no worker any more, because it was
// removed or the executor closes. It is the last event of a service.
type WorkerStopped struct {
	Service models.ServiceID
	PID     int // of the worker that was ended, 0 if there was none
}

func (WorkerStarting) event() {}
func (WorkerProgress) event() {}
func (WorkerReady) event()    {}
func (WorkerOutput) event()   {}
func (WorkerLost) event()     {}
func (WorkerFailed) event()   {}
func (WorkerStopped) event()  {}

// Errors of calls.
var (
	// ErrClosed is returned after Close, and is the reason of a span that
	// Close ended.
	ErrClosed = errors.New("executor: closed")

	// ErrOptions is returned by New when the options cannot work.
	ErrOptions = errors.New("executor: bad options")

	// ErrUnknownService is returned when no service has the given ID.
	ErrUnknownService = errors.New("executor: unknown service")

	// ErrBadSpan is returned when a span of a round makes no sense, or two
	// spans are of one service.
	ErrBadSpan = errors.New("executor: bad span")

	// ErrTooManyRounds is returned when MaxRounds rounds run or have outcomes
	// that were not received.
	ErrTooManyRounds = errors.New("executor: too many rounds in flight")

	// ErrInUse is returned by Add when there is a service with this ID, or one
	// that is being removed: wait until that is gone, or take another ID.
	ErrInUse = errors.New("executor: service ID is in use")

	// ErrLeak is returned by Close, and comes of Remove, when shared memory is
	// still in use.
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

	// ErrLoadTimeout is the reason when loading took longer than LoadTimeout.
	ErrLoadTimeout = errors.New("executor: loading took too long")

	// ErrLoad is the reason when the worker could not load its model.
	ErrLoad = errors.New("executor: load failed")

	// ErrSpanTimeout is the reason when a span took longer than SpanTimeout.
	ErrSpanTimeout = errors.New("executor: worker hangs")

	// ErrProtocol is the reason when a worker said what cannot be.
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

// LostError tells how a worker ended.
type LostError struct {
	Service string
	Cause   error
	Exit    string // how the process ended, "" if that was not known in time
	Stderr  string // the last that the process wrote, at most child.TailBytes
}

// Error says it on one line, with the lines of standard error that say
// most.
func (e *LostError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "worker of %s: %v", e.Service, e.Cause)
	if e.Exit != "" {
		fmt.Fprintf(&b, " (%s)", e.Exit)
	}
	if lines := child.Excerpt(e.Stderr, errorLines); lines != "" {
		fmt.Fprintf(&b, "; stderr: %s", lines)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// errorLines is how many lines of standard error go into the text of an error.
const errorLines = 12
