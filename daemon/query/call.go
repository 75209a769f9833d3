// Package query carries an inference query from the codec of a protocol to the scheduler
// and back, in the same way for every protocol.
//
// A codec (daemon/http, daemon/rpc) decodes a request into a [Call]. [Server.Answer] checks
// the call against the [Signature] of its [Service], copies its tensors into the shared
// memory of a [Backend], and waits for the single answer. The scheduler's loop
// (daemon/loop) implements Backend and publishes its services in a [Registry]. [Budget] and
// [Places] limit memory and connections over all protocols together.
//
// # Where the protocol leaves a choice
//
//   - The version of every model is "1".
//   - A dimension of a shape is at least 1: a tensor without elements is rejected.
//   - Unknown parameters are ignored. Parameters that Triton reserves (sequence_*,
//     triton_*, headers) and those that ask for unsupported features
//     (classification, shared memory) are rejected.
//   - A query is cancelled when its client disconnects.
//   - A BYTES tensor is stored as in the binary extension: each element is a
//     little-endian length of four bytes, followed by that many bytes.
package query

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/models"
)

// ModelVersion is the version of every model. overlapd serves one version at a time.
const ModelVersion = "1"

// Backend runs the queries of its services. Its methods are called from many goroutines at
// once, and none of them may block.
//
// A call goes through Alloc, then Submit. If Submit fails, the caller returns the memory
// with Free. If it succeeds, the memory belongs to the backend and exactly one
// [Call.Answer] follows, whatever happens. The caller reads the outputs and then calls
// Release once.
type Backend interface {
	// Alloc returns memory shared with the workers of the service, large enough for all
	// inputs of one query. It fails with ErrNoMemory, ErrTooLarge or ErrUnavailable.
	Alloc(s *Service, bytes int64) (Memory, error)

	// Free returns memory that no submitted call uses.
	Free(s *Service, m Memory)

	// Submit queues a call. It fails with ErrQueueFull, ErrDraining, ErrUnavailable or an
	// *Error of the backend.
	Submit(c *Call) error

	// Cancel tells the backend that the client of a submitted call has disconnected. It is
	// called at most once a call and never after Release. The backend must still answer.
	Cancel(c *Call)

	// Release returns the memory of an answered call. The backend must have dropped c when
	// it returns, because c is reused.
	Release(c *Call)
}

// Memory is a piece of memory shared with workers. Bytes is its mapping in this process.
// Offset is the position of its first byte in the shared memory file, a multiple of
// Alignment.
type Memory struct {
	Bytes  []byte
	Offset int64
}

// Alignment is the alignment of each input in shared memory, in bytes. It is the size of a
// cache line and of the widest vector register.
const Alignment = 64

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

// Output is an output that a request asks for. Port is its index in the model. Binary asks
// for raw bytes, otherwise for JSON text or the protocol's other form.
type Output struct {
	Port   int
	Binary bool
}

// Reply is the answer to a call. Err is set if the query was dropped or failed. Otherwise
// Outputs holds all outputs in the order of the model, valid until Release, and Variant
// names the variant that answered ("" if the service has none).
//
// Deadly is set if the query killed a worker. Queue is the time before its first round.
// Compute is the time from its first operator range to its last, pauses included.
type Reply struct {
	Outputs []models.Tensor
	Variant string
	Err     *Error
	Deadly  bool
	Queue   time.Duration
	Compute time.Duration
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

// Limits on a request that are not configurable. IDs are echoed and logged, parameters are
// scanned linearly, and a timeout must fit into a time.Duration.
const (
	MaxIDBytes     = 1 << 10
	MaxPriority    = math.MaxInt32
	MaxParameters  = 64 // for a request, and again for each tensor
	MaxTimeoutUsec = math.MaxInt64 / int64(time.Microsecond)
)

// StringHead is the number of bytes of the length before each element of a BYTES tensor.
const StringHead = 4

// BinaryOnly reports whether the protocols carry elements of a type only as raw bytes,
// neither as JSON nor as typed contents.
func BinaryOnly(t models.DataType) bool { return t == models.Float16 || t == models.BFloat16 }

// Request parameters that choose the variant which answers. The response repeats the first
// with the name of the variant that did.
const (
	ParameterVariant       = "variant"
	ParameterLeastAccuracy = "least_accuracy"
)

// CheckParameter rejects a request parameter that overlapd does not implement and that
// changes the meaning of a request in Triton. Other unknown parameters are ignored.
func CheckParameter[S string | []byte](key S) *Error {
	if k := string(key); strings.HasPrefix(k, "sequence_") || strings.HasPrefix(k, "triton_") || k == "headers" {
		return Invalid("the parameter %q is reserved, and overlapd does not support it", Cut(k))
	}
	return nil
}

// CheckTensorParameter rejects a tensor parameter that asks for a feature overlapd does not
// implement.
func CheckTensorParameter[S string | []byte](key S) *Error {
	switch k := string(key); {
	case k == "classification":
		return Invalid("the parameter %q asks for something that overlapd does not support", k)
	case strings.HasPrefix(k, "shared_memory_"):
		return errSharedMemory
	}
	return nil
}

// Input is a decoded input of a query. Data points into the request, until Admit has copied
// it. Instead of Data a request may bring Text, a JSON array whose elements are parsed only
// when they are copied. TextAt is the position of Text in the body, for errors.
type Input struct {
	models.Tensor
	Name     string
	Text     []byte
	TextAt   int
	Elements int64

	// dims is the storage of Shape, so that an input needs no allocation.
	dims [MaxRank]int64

	// room is an upper bound on its bytes in shared memory.
	room int64

	// given is set once the request has brought the input.
	given bool
}

// AddDimension appends a dimension to the shape and multiplies Elements by it. It fails if
// the rank exceeds MaxRank, v is below 1, or the product overflows.
func (in *Input) AddDimension(v int64) *Error {
	rank := len(in.Shape)
	if rank == 0 {
		in.Elements = 1
	}
	switch {
	case rank == MaxRank:
		return Invalid("a shape has more than %d dimensions", MaxRank)
	case v < 1:
		return Invalid("a dimension must be at least 1, not %d", v)
	case v > math.MaxInt64/in.Elements:
		return Invalid("the elements of a shape overflow")
	}
	in.dims[rank] = v
	in.Shape = in.dims[:rank+1]
	in.Elements *= v
	return nil
}

// SetID sets the client's name for the query. The ID appears in logs, so every character
// must be printable.
func (c *Call) SetID(id []byte) *Error {
	if len(id) > MaxIDBytes {
		return Invalid(`"id" has %d bytes, the limit is %d`, len(id), MaxIDBytes)
	}
	if bytes.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Invalid(`"id" contains a character that is not printable`)
	}
	c.ID = append(c.ID[:0], id...)
	return nil
}

// AskVariant restricts the query to the variant with this name.
func (c *Call) AskVariant(name []byte) *Error {
	s := c.Service
	if err := s.hasVariants(ParameterVariant); err != nil {
		return err
	}
	for i := range s.Variants {
		if s.Variants[i].Name == string(name) {
			c.Variant = i
			return nil
		}
	}
	return Invalid("service %s has no variant %q: choose one of %s", s.Name, Cut(name), s.variants())
}

// AskAccuracy restricts the query to variants of at least this accuracy; 0 allows all. An
// accuracy that no variant reaches is an error.
func (c *Call) AskAccuracy(least float64) *Error {
	s := c.Service
	if err := s.hasVariants(ParameterLeastAccuracy); err != nil {
		return err
	}
	// The negated comparison rejects NaN as well.
	if !(least >= 0) || math.IsInf(least, 1) {
		return Invalid("the parameter %q must be a finite number, 0 or more, not %v", ParameterLeastAccuracy, least)
	}
	highest := 0.0
	for i := range s.Variants {
		highest = max(highest, s.Variants[i].Accuracy)
	}
	if least > highest {
		return Invalid("the parameter %q is %v, but the highest accuracy of a variant of %s is %v: request that or less",
			ParameterLeastAccuracy, least, s.Name, highest)
	}
	c.LeastAccuracy = least
	return nil
}

// checkVariant returns an error if the request names a variant that is less accurate than
// the request demands.
func (c *Call) checkVariant() *Error {
	if c.Variant < 0 {
		return nil
	}
	v := &c.Service.Variants[c.Variant]
	if v.Accuracy >= c.LeastAccuracy {
		return nil
	}
	return Invalid("the variant %s has an accuracy of %v, but the request needs at least %v: leave out %q or %q",
		v.Name, v.Accuracy, c.LeastAccuracy, ParameterVariant, ParameterLeastAccuracy)
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

// Check validates the inputs against the model and against each other, and the requested
// variant. It reads no element: Admit does.
func (c *Call) Check() *Error {
	sig := c.Signature
	for n := range sig.Inputs {
		p, in := &sig.Inputs[n], &c.Given[n]
		if !in.given {
			return Invalid("input %q is missing", p.Name)
		}
		if err := c.checkShape(p, in); err != nil {
			return err
		}
		if err := in.checkBytes(); err != nil {
			return err
		}
		if sig.Batched && in.Shape[0] != c.Given[0].Shape[0] {
			return Invalid("input %q has batch size %d, but input %q has %d",
				p.Name, in.Shape[0], sig.Inputs[0].Name, c.Given[0].Shape[0])
		}
	}
	return c.checkVariant()
}

// checkShape compares a shape with the model's. Dimensions with the same name must be equal
// over all inputs.
func (c *Call) checkShape(p *Port, in *Input) *Error {
	if p.AnyRank {
		return nil
	}
	if len(in.Shape) != len(p.Dims) {
		return Invalid("input %q has rank %d, but the model has %d", p.Name, len(in.Shape), len(p.Dims))
	}
	for i, want := range p.Dims {
		got := in.Shape[i]
		if want >= 0 && got != want {
			return Invalid("input %q has %d in dimension %d, but the model has %d", p.Name, got, i, want)
		}
		if link := p.link[i]; link >= 0 {
			if c.links[link] == 0 {
				c.links[link] = got
			}
			if c.links[link] != got {
				return Invalid("input %q has %d in dimension %d, but another input has %d there",
					p.Name, got, i, c.links[link])
			}
		}
	}
	return nil
}

// The shortest JSON array of n numbers has 2n+1 bytes, the shortest of n strings 3n+1.
const (
	numbersPerByte = 2
	stringsPerByte = 3
)

// checkBytes compares the length of an input's data with its shape and sets room. It
// rejects a shape that the text is too short to fill before any memory is taken for it:
// otherwise a few bytes of JSON could claim gigabytes.
func (in *Input) checkBytes() *Error {
	each := int64(numbersPerByte)
	if in.Type == models.String {
		if in.Text == nil {
			in.room = int64(len(in.Data))
			return in.checkStrings()
		}
		in.room, each = int64(len(in.Text))+StringHead*in.Elements, stringsPerByte
	} else {
		hi, size := bits.Mul64(uint64(in.Elements), uint64(in.Type.Bytes()))
		if hi != 0 || size > math.MaxInt64 {
			return Invalid("input %q: its shape overflows", in.Name)
		}
		in.room = int64(size)
	}
	switch {
	case in.Text == nil && in.room != int64(len(in.Data)):
		return Invalid("input %q: binary_data_size is %d, but its shape needs %d", in.Name, len(in.Data), in.room)
	case in.Text != nil && in.Elements > int64(len(in.Text))/each:
		return Invalid("input %q: its shape has %d elements, but its data has fewer", in.Name, in.Elements)
	}
	return nil
}

// NextString splits the first element off the data of a BYTES tensor. It returns false if
// the data ends within that element.
func NextString(data []byte) (element, rest []byte, ok bool) {
	if len(data) < StringHead {
		return nil, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if data = data[StringHead:]; n > uint64(len(data)) {
		return nil, nil, false
	}
	return data[:n], data[n:], true
}

// checkStrings walks the lengths in a binary BYTES tensor and compares the number of
// elements with the shape.
func (in *Input) checkStrings() *Error {
	n := int64(0)
	for rest, ok := in.Data, true; len(rest) > 0; n++ {
		if len(rest) < StringHead {
			return Invalid("input %q: its data ends within the length of element %d", in.Name, n)
		}
		if _, rest, ok = NextString(rest); !ok {
			return Invalid("input %q: element %d goes beyond the end of its data", in.Name, n)
		}
	}
	if n != in.Elements {
		return Invalid("input %q: its data has %d elements, but its shape has %d", in.Name, n, in.Elements)
	}
	return nil
}

// Admit checks a call against the limits of its service and copies its inputs into shared
// memory. This is the only copy of the inputs. write puts the elements of an input into dst
// and returns the number of bytes written.
func (c *Call) Admit(write func(dst []byte, in *Input) (int, *Error)) *Error {
	s, sig := c.Service, c.Signature
	c.Size, c.SeqLen, c.Shape = 1, 0, c.shapeHash()
	if sig.Batched {
		c.Size = int(c.Given[0].Shape[0])
	}
	if sig.seq.input >= 0 {
		c.SeqLen = int(c.Given[sig.seq.input].Shape[sig.seq.dim])
	}
	if c.Size > s.MaxQueryBatch {
		return Invalid("the batch size is %d, and the limit of this service is %d", c.Size, s.MaxQueryBatch)
	}
	if s.MaxSeqLen > 0 && c.SeqLen > s.MaxSeqLen {
		return Invalid("the sequence length is %d, and the limit of this service is %d", c.SeqLen, s.MaxSeqLen)
	}
	room, ok := c.room()
	if !ok {
		return ErrTooLarge
	}
	m, failed := s.Backend.Alloc(s, room)
	if failed != nil {
		return asError(failed)
	}
	at := int64(0)
	for i := range c.Given {
		in := &c.Given[i]
		at = Aligned(at)
		end := at + in.room
		c.TextBytes += len(in.Text)
		n, err := write(m.Bytes[at:end:end], in)
		if err != nil {
			s.Backend.Free(s, m)
			return err
		}
		// Text and Data pointed into the request body, which the codec may now release.
		in.Text, in.Data = nil, nil
		c.Inputs = append(c.Inputs, models.Tensor{
			Type: in.Type, Shape: in.Shape, Data: m.Bytes[at : at+int64(n) : at+int64(n)], Offset: m.Offset + at, Bytes: int64(n),
		})
		at = end
	}
	c.Memory = m
	return nil
}

// room returns the bytes of shared memory that all inputs need, alignment included, and
// false if the sum overflows.
func (c *Call) room() (int64, bool) {
	var sum int64
	for i := range c.Given {
		n := c.Given[i].room
		if n > math.MaxInt64-Alignment-sum {
			return 0, false
		}
		sum = Aligned(sum) + n
	}
	return sum, true
}

// Aligned rounds n up to a multiple of Alignment.
func Aligned(n int64) int64 { return (n + Alignment - 1) &^ (Alignment - 1) }

// shapeSeed is random for each process, so that clients cannot construct colliding shapes.
var shapeSeed = maphash.MakeSeed()

// shapeHash returns a hash of all input shapes without the batch dimension. It is only
// comparable within this process.
func (c *Call) shapeHash() uint64 {
	type link struct {
		before uint64
		value  int
	}
	h := uint64(len(c.Given))
	for i := range c.Given {
		dims := c.Given[i].Shape
		if c.Signature.Batched {
			dims = dims[1:]
		}
		h = maphash.Comparable(shapeSeed, link{h, len(dims)})
		for _, d := range dims {
			h = maphash.Comparable(shapeSeed, link{h, int(d)})
		}
	}
	return h
}
