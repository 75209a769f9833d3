package executor

import (
	"time"

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
