package query

import (
	"net/netip"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/models"
)

// Call is one query on its way through the daemon. A codec fills it with SetID, Give and
// Ask, validates it with Check, and copies its inputs with Admit. Calls are pooled: nothing
// that a call points to may be used after it was released.
type Call struct {
	// Service is the service that was asked. Signature is the one it had when the call
	// began, which a reload or a restarted worker does not change. Neither is nil for a
	// codec.
	Service   *Service
	Signature *Signature

	// The codec sets the fields down to Arrival. Sender identifies the client, see
	// [Sender]. ID is the client's name for the query: printable and possibly empty. Given
	// has the decoded inputs in the order of the model, Outputs in the order of the
	// response. A positive Timeout can shorten the QoS target but not lengthen it. Priority
	// 1 is the highest, and 0 means none.
	Sender   netip.Prefix
	ID       []byte
	Given    []Input
	Outputs  []Output
	Timeout  time.Duration
	Priority int

	// Variant is the index of the variant that must answer, or -1 for any. LeastAccuracy is
	// the minimum accuracy of the variant that answers, or 0 for any.
	Variant       int
	LeastAccuracy float64

	// Arrival is when the request was read completely. The deadline counts from it.
	Arrival time.Time

	// Admit sets these: the shared memory that holds the inputs, the inputs as they lie
	// there, the client's batch dimension (at least 1), the sequence length (0 if the model
	// has none), and a hash of all input shapes without their batch dimension. Only queries
	// of the same Shape can be batched.
	Memory Memory
	Inputs []models.Tensor
	Size   int
	SeqLen int
	Shape  uint64

	// TextBytes is the length of the JSON text that Admit parsed numbers from. It is a
	// measure of the work of parsing.
	TextBytes int

	// The backend sets QueryID and Backend. Backend survives when the call is reused, so
	// that the backend need not allocate its own record again.
	QueryID models.QueryID
	Backend any

	// Trace records the trace spans of the query. It is nil if the query is not traced.
	Trace *tracing.Query

	// Reply is valid once a value has been received from Answered.
	Reply Reply

	// links holds the value of each named dimension, 0 until an input has set it.
	links []int64

	// answer has a capacity of one, so that Answer never blocks.
	answer chan struct{}
}

// NewCall returns an empty call to a service. The caller does not return it to a pool.
func NewCall(s *Service) *Call {
	c := &Call{answer: make(chan struct{}, 1)}
	c.reset(s, s.Signature())
	return c
}

// reset prepares the call for another query. It keeps the memory of its slices, the answer
// channel and Backend.
func (c *Call) reset(s *Service, sig *Signature) {
	c.Service, c.Signature, c.Sender = s, sig, netip.Prefix{}
	c.ID, c.Outputs, c.Timeout, c.Priority = c.ID[:0], c.Outputs[:0], 0, 0
	c.Variant, c.LeastAccuracy = -1, 0
	c.Inputs, c.Memory, c.Size, c.SeqLen, c.Shape, c.TextBytes, c.QueryID = c.Inputs[:0], Memory{}, 0, 0, 0, 0, 0
	c.Arrival, c.Reply, c.Trace = time.Time{}, Reply{}, nil
	if sig != nil {
		c.Given, c.links = resize(c.Given, len(sig.Inputs)), resize(c.links, sig.links)
	}
}

// forget drops all references into a request body, shared memory or a service, so that a
// pooled call keeps none of them alive.
func (c *Call) forget() {
	clear(c.Given)
	for i := range c.Inputs {
		c.Inputs[i].Data = nil
	}
	c.Service, c.Signature, c.Memory, c.Reply, c.Trace = nil, nil, Memory{}, Reply{}, nil
}

// resize returns s with n zeroed elements, reusing its memory where it is large enough.
func resize[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// Answer ends the call, from any goroutine. It must be called exactly once after a
// successful Submit. A second answer panics: the call may have been reused, and another
// client would get these outputs.
func (c *Call) Answer(r Reply) {
	c.Reply = r
	select {
	case c.answer <- struct{}{}:
	default:
		panic("query: a call was answered twice")
	}
}

// Answered returns a channel that delivers one value once the call has been answered.
func (c *Call) Answered() <-chan struct{} { return c.answer }

// Deadline returns the time after which the answer is worthless to the client: the arrival
// plus the QoS target, or plus the client's timeout if that is shorter.
func (c *Call) Deadline() time.Time {
	d := c.Service.QoSTarget
	if c.Timeout > 0 && c.Timeout < d {
		d = c.Timeout
	}
	return c.Arrival.Add(d)
}

// wait blocks until the call is answered. If left is closed first, it cancels the call and
// still waits for the answer: until then the backend owns the memory. left may be nil.
func (c *Call) wait(left <-chan struct{}) {
	if left == nil {
		<-c.answer
		return
	}
	select {
	case <-c.answer:
	case <-left:
		c.Service.Backend.Cancel(c)
		<-c.answer
	}
}

// Give sets an input of the model. in must have its type and shape; its data may follow
// later. The input is copied, so in may be reused.
func (c *Call) Give(port int, in *Input) *Error {
	p, slot := &c.Signature.Inputs[port], &c.Given[port]
	switch {
	case slot.given:
		return Invalid("input %q is given twice", p.Name)
	case in.Type != p.Type:
		return Invalid("input %q is %s, but the model has %s", p.Name, in.Type.Protocol(), p.Type.Protocol())
	}
	rank := len(in.Shape)
	*slot = *in
	// The copy's shape must point to its own dims, not to those of in.
	slot.given, slot.Name, slot.Shape = true, p.Name, slot.dims[:rank]
	if rank == 0 {
		// A scalar has no dimensions and one element.
		slot.Elements = 1
	}
	return nil
}

// Ask adds an output to the requested ones. A request that adds none gets all, see AskAll.
func (c *Call) Ask(o Output) *Error {
	for i := range c.Outputs {
		if c.Outputs[i].Port == o.Port {
			return Invalid("output %q is requested twice", c.Signature.Outputs[o.Port].Name)
		}
	}
	c.Outputs = append(c.Outputs, o)
	return nil
}

// AskAll requests every output, unless the request has named some.
func (c *Call) AskAll(binary bool) {
	if len(c.Outputs) > 0 {
		return
	}
	for i := range c.Signature.Outputs {
		c.Outputs = append(c.Outputs, Output{Port: i, Binary: binary})
	}
}
