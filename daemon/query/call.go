// Package query is what happens to an inference query between the codec of a
// protocol and the scheduler, the same for all protocols. A codec (daemon/http,
// daemon/rpc) decodes a request into a [Call], which holds it against the
// [Signature] of its [Service], puts its tensors into the shared memory of a
// [Backend], and waits for the one answer. The scheduler (daemon's loop)
// implements Backend and publishes its services in a [Registry].
//
// # Choices where the protocol leaves one
//
//   - The version of every model is "1".
//   - A dimension of a shape is at least 1: a tensor without elements is
//     refused.
//   - Parameters that overlapd does not know are ignored. Those that Triton
//     reserves (sequence_*, triton_*, headers) and those that ask for what
//     overlapd does not do (classification, shared memory) are refused.
//   - A client that goes away has left: its query is cancelled.
//   - A tensor of type BYTES lies in memory as the binary extension sends it:
//     for each element four bytes of length, little endian, and the bytes.
package query

import (
	"time"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/models"
)

// ModelVersion is the version of every model.
const ModelVersion = "1"

// Backend runs the queries of its services. Its methods are called from many
// goroutines at once, and none of them may block.
//
// The way of a call: Alloc, then Submit. If Submit fails, the memory goes
// back by Free. If it succeeds, the memory is the backend's, exactly one
// [Call.Answer] follows whatever happens, and Release is then called once, when
// the outputs have been read.
type Backend interface {
	// Alloc returns memory shared with the service's worker, for all inputs of
	// one query. It fails with ErrNoMemory, ErrTooLarge or ErrUnavailable.
	Alloc(s *Service, bytes int64) (Memory, error)

	// Free takes back memory that no submitted call uses.
	Free(s *Service, m Memory)

	// Submit queues a call. It fails with ErrQueueFull, ErrDraining,
	// ErrUnavailable or an *Error of the backend's own.
	Submit(c *Call) error

	// Cancel is called when the client of a submitted call has left, at most
	// once for a call and never after Release. The answer is still due.
	Cancel(c *Call)

	// Release takes back the memory of a call that was answered. The backend
	// forgets c before it returns, because c is used again.
	Release(c *Call)
}

// Memory is a piece of memory shared with a worker.
type Memory struct {
	Bytes  []byte // the piece itself, as seen by this process
	Offset int64  // of Bytes[0] in the shared memory file, a multiple of Alignment
}

// Alignment in bytes of each input in shared memory.
const Alignment = 64

// Tensor is an input or output of one query.
type Tensor struct {
	Name   string
	Type   models.DataType
	Shape  []int64
	Data   []byte // little endian, row by row; lies in shared memory
	Offset int64  // of Data[0] in the shared memory file; inputs only
}

// Call is one query on its way through the daemon. A codec decodes a request
// into it by SetID, Give and Ask, has it held against the model by Check, and
// hands it in by Admit. Calls are used again: what a call points to belongs to
// it only until it is released.
type Call struct {
	Service   *Service
	Signature *Signature    // of the service when the call began, never nil in a codec
	ID        []byte        // the client's name for it, may be empty; printable
	Inputs    []Input       // in the order of the model
	Outputs   []Output      // asked for, in the order of the answer
	Memory    Memory        // what Inputs lie in once admitted
	Size      int           // the client's own batch dimension, at least 1
	SeqLen    int           // sequence length, 0 if the model has none
	Shape     uint64        // hash of all input shapes without their batch dimension
	Arrival   time.Time     // when its request had been read
	Timeout   time.Duration // 0, or a deadline that the client set; only ever shortens the QoS target
	Priority  int           // 0 is none; otherwise 1 is the highest

	QueryID models.QueryID // the backend's to set
	Backend any            // the backend's to use; kept when the call is used again
	Trace   *tracing.Query // what is recorded of it, nil if it is not traced
	Reply   Reply          // its answer, once Answered has been received from

	links  []int64       // values of named dimensions, 0 where not met
	answer chan struct{} // holds one
}

// Output is an output that a request asks for.
type Output struct {
	Port   int  // in the order of the model
	Binary bool // as bytes, not in the text or the typed form of the protocol
}

// Reply is the answer to a call.
type Reply struct {
	Outputs []Tensor // all of them, in the order of the model; valid until Release
	Err     *Error   // if it was dropped or failed; Outputs is then ignored

	Queue   time.Duration // waiting for its first round
	Compute time.Duration // from the first span to the last, pauses included
}

// NewCall returns an empty call to a service.
func NewCall(s *Service) *Call {
	c := &Call{answer: make(chan struct{}, 1)}
	c.reset(s, s.Signature())
	return c
}

// reset empties the call for another query.
func (c *Call) reset(s *Service, sig *Signature) {
	c.Service, c.Signature = s, sig
	c.ID, c.Outputs, c.Timeout, c.Priority = c.ID[:0], c.Outputs[:0], 0, 0
	c.Memory, c.Size, c.SeqLen, c.Shape, c.QueryID = Memory{}, 0, 0, 0, 0
	c.Arrival, c.Reply, c.Trace = time.Time{}, Reply{}, nil
	if sig != nil {
		c.Inputs, c.links = resize(c.Inputs, len(sig.Inputs)), resize(c.links, sig.links)
	}
}

// forget drops what points into a body, shared memory or a service.
func (c *Call) forget() {
	clear(c.Inputs)
	c.Service, c.Signature, c.Memory, c.Reply, c.Trace = nil, nil, Memory{}, Reply{}, nil
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// Answer ends the call. It must be called exactly once after a successful
// Submit, from any goroutine; a second answer panics, because a client would
// get the outputs of another.
func (c *Call) Answer(r Reply) {
	c.Reply = r
	select {
	case c.answer <- struct{}{}:
	default:
		panic("query: a call was answered twice")
	}
}

// Answered returns a channel that holds one value once the call is answered.
func (c *Call) Answered() <-chan struct{} { return c.answer }

// Deadline returns when the answer is worthless.
func (c *Call) Deadline() time.Time {
	d := c.Service.QoSTarget
	if c.Timeout > 0 && c.Timeout < d {
		d = c.Timeout
	}
	return c.Arrival.Add(d)
}
