package daemon

import (
	"time"

	"github.com/overlapd/overlapd/daemon/timeline"
	"github.com/overlapd/overlapd/daemon/tracing"
	"github.com/overlapd/overlapd/models"
)

// Backend is what the endpoint asks of the rest of the daemon. Its methods
// are called from many goroutines at once, and none of them may block.
//
// The way of a call: Alloc, then Submit. If Submit fails, the memory goes
// back by Free. If it succeeds, the memory is the backend's, exactly one
// [Call.Answer] follows whatever happens, and the endpoint then calls Release
// once, when it has read the outputs.
type Backend interface {
	// Services returns every service in the order of the configuration. The
	// slice never changes: when services come or go, the next call returns
	// another.
	Services() []*Service

	// Service returns the service of a name, or nil.
	Service(name []byte) *Service

	// Alloc returns memory shared with the service's worker, for all inputs of
	// one query. It fails with ErrNoMemory, ErrTooLarge or ErrUnavailable.
	Alloc(s *Service, bytes int64) (Memory, error)

	// Free takes back memory that no submitted call uses.
	Free(s *Service, m Memory)

	// Submit queues a call. It fails with ErrQueueFull, ErrDraining,
	// ErrUnavailable or an *Error of the backend's own.
	Submit(c *Call) error

	// Cancel tells that the client of a submitted call has left. It comes at
	// most once for a call, and never after Release. The answer is still due.
	Cancel(c *Call)

	// Release takes back the memory of a call that was answered. The backend
	// forgets c before it returns: the endpoint uses it again.
	Release(c *Call)

	// Live reports whether the scheduler goroutine makes progress.
	Live() bool

	// Ready reports whether every service can answer queries.
	Ready() bool

	// Overview returns what was decided and predicted. It is false if the
	// scheduler goroutine has ended or does not answer.
	Overview() (Overview, bool)

	// Timelines returns what remembers the last rounds, of each instance.
	Timelines() []*timeline.Ring
}

// Memory is a piece of memory shared with a worker.
type Memory struct {
	Bytes  []byte // the piece itself, as seen by this process
	Offset int64  // of Bytes[0] in the shared memory file, a multiple of 64
}

// Tensor is a view of an input or output of one query.
type Tensor struct {
	Name   string
	Type   models.DataType
	Shape  []int64
	Data   []byte // lies in shared memory
	Offset int64  // of Data[0] in the shared memory file; inputs only
}

// Call is one query on its way through the daemon. The endpoint fills it in
// before Submit and reuses it after Release.
type Call struct {
	Service  *Service
	ID       []byte        // the client's name for it, may be empty; printable
	Inputs   []Tensor      // in the order of the model
	Memory   Memory        // what Inputs lie in
	Size     int           // the client's own batch dimension, at least 1
	SeqLen   int           // sequence length, 0 if the model has none
	Shape    uint64        // hash of all input shapes without their batch dimension
	Arrival  time.Time     // when its request had been read
	Timeout  time.Duration // 0, or a deadline that the client set; only ever shortens the QoS target
	Priority int           // 0 is none; otherwise 1 is the highest

	QueryID models.QueryID // the backend's to set
	Backend any            // the backend's to use; kept when the call is reused

	reply  Reply
	answer chan struct{} // holds one

	request request        // what the endpoint decoded
	trace   *tracing.Query // what is noted of it, nil if it is not traced
}

// Reply is the answer to a call.
type Reply struct {
	Outputs []Tensor // all of them, in the order of the model; valid until Release
	Err     *Error   // if it was dropped or failed; Outputs is then ignored
	Timing  Timing
}

// Timing tells where the time of a query went, as Triton's statistics divide
// it.
type Timing struct {
	Queue         time.Duration // waiting for its first round
	ComputeInput  time.Duration // gathering inputs
	ComputeInfer  time.Duration // from the first span to the last, pauses included
	ComputeOutput time.Duration // splitting outputs
}

// Answer ends the call. It must be called exactly once after a successful
// Submit, from any goroutine; a second answer panics, because a client would
// get the outputs of another.
func (c *Call) Answer(r Reply) {
	c.reply = r
	select {
	case c.answer <- struct{}{}:
	default:
		panic("daemon: a call was answered twice")
	}
}

// Deadline returns when the answer is worthless.
func (c *Call) Deadline() time.Time {
	d := c.Service.QoSTarget
	if c.Timeout > 0 && c.Timeout < d {
		d = c.Timeout
	}
	return c.Arrival.Add(d)
}

// NewCall returns an empty call, as tests and benchmarks need it.
func NewCall() *Call { return &Call{answer: make(chan struct{}, 1)} }
