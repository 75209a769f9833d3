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

// Memory is a piece of memory shared with a worker. Bytes is the piece as this
// process sees it, Offset the position of its first byte in the shared memory
// file, a multiple of Alignment.
type Memory struct {
	Bytes  []byte
	Offset int64
}

// Alignment in bytes of each input in shared memory.
const Alignment = 64

// Tensor is an input or output of one query. Its elements stand in Data little
// endian and row by row. Offset is the position of Data in the shared memory file;
// only inputs have one.
type Tensor struct {
	Name   string
	Type   models.DataType
	Shape  []int64
	Data   []byte
	Offset int64
}

// Call is one query on its way through the daemon. A codec decodes a request
// into it by SetID, Give and Ask, has it held against the model by Check, and
// hands it in by Admit. Calls are used again: what a call points to belongs to
// it only until it is released.
type Call struct {
	// Service is asked, and Signature is what it had when the call began. A
	// codec never sees nil.
	Service   *Service
	Signature *Signature

	// The codec sets these. Inputs stand in the order of the model, Outputs in
	// that of the answer. ID is the client's name for the query, printable and
	// possibly empty. A Timeout of more than 0 shortens the QoS target and never
	// lengthens it. The highest Priority is 1, and 0 is none. Arrival is when the
	// request had been read.
	ID       []byte
	Inputs   []Input
	Outputs  []Output
	Timeout  time.Duration
	Priority int
	Arrival  time.Time

	// Admit sets these: the shared memory that the inputs lie in, the client's own
	// batch dimension (at least 1), the sequence length (0 if the model has none),
	// and a hash of all input shapes without their batch dimension.
	Memory Memory
	Size   int
	SeqLen int
	Shape  uint64

	// QueryID and Backend are the backend's to set. Backend stays when the call
	// is used again.
	QueryID models.QueryID
	Backend any

	// Trace records the query, and is nil if it is not traced.
	Trace *tracing.Query

	// Reply is the answer, once Answered has been received from.
	Reply Reply

	links  []int64       // values of named dimensions, 0 where not met
	answer chan struct{} // has room for one
}

// Output is an output that a request asks for: its position in the model, and
// whether it is wanted as bytes and not as text or in another form of the
// protocol.
type Output struct {
	Port   int
	Binary bool
}

// Reply is the answer to a call: an error if it was dropped or failed, and else
// all outputs in the order of the model, which are valid until Release. Queue is
// how long it waited for its first round, Compute the time from its first span to
// its last, pauses included.
type Reply struct {
	Outputs []Tensor
	Err     *Error
	Queue   time.Duration
	Compute time.Duration
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
