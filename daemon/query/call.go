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
	// that of the answer. Sender is who it comes from, see [Sender]. ID is the client's name for the query, printable and
	// possibly empty. A Timeout of more than 0 shortens the QoS target and never
	// lengthens it. The highest Priority is 1, and 0 is none. Variant is the position
	// of the variant that must answer, -1 for any, and LeastAccuracy the accuracy that
	// the one that answers must have, 0 for any. Arrival is when the request had been read.
	Sender   netip.Prefix
	ID       []byte
	Inputs   []Input
	Outputs  []Output
	Timeout  time.Duration
	Priority int

	Variant       int
	LeastAccuracy float64

	Arrival time.Time

	// Admit sets these: the shared memory that the inputs lie in, the client's own
	// batch dimension (at least 1), the sequence length (0 if the model has none),
	// and a hash of all input shapes without their batch dimension.
	Memory Memory
	Size   int
	SeqLen int
	Shape  uint64

	// TextBytes is how much text Admit has read numbers from.
	TextBytes int

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
// its last, pauses included. It is Deadly if a worker died of it. Variant is the name of
// the variant that answered, "" where the service has none.
type Reply struct {
	Outputs []Tensor
	Variant string
	Err     *Error
	Deadly  bool
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
	c.Service, c.Signature, c.Sender = s, sig, netip.Prefix{}
	c.ID, c.Outputs, c.Timeout, c.Priority = c.ID[:0], c.Outputs[:0], 0, 0
	c.Variant, c.LeastAccuracy = -1, 0
	c.Memory, c.Size, c.SeqLen, c.Shape, c.TextBytes, c.QueryID = Memory{}, 0, 0, 0, 0, 0
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
	s = slices.Grow(s[:0], n)[:n]
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

// wait returns when the call is answered. Until then the departure of the
// client cancels it.
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

// Limits on a request, besides those of the configuration.
const (
	MaxIDBytes     = 1 << 10
	MaxPriority    = math.MaxInt32
	MaxParameters  = 64 // for a request, and for each tensor
	MaxTimeoutUsec = math.MaxInt64 / int64(time.Microsecond)
)

// StringHead is the length before each element of a tensor of type BYTES.
const StringHead = 4

// BinaryOnly reports whether the protocols carry a type only as bytes, neither as
// JSON nor as typed contents.
func BinaryOnly(t models.DataType) bool { return t == models.Float16 || t == models.BFloat16 }

// The parameters of a request that say which variant may answer it, of which the first is
// also in the answer and says which has.
const (
	ParameterVariant       = "variant"
	ParameterLeastAccuracy = "least_accuracy"
)

// CheckParameter refuses a parameter of a request that is not known here and has
// a meaning in Triton that would be lost if it were ignored.
func CheckParameter[S string | []byte](key S) *Error {
	if k := string(key); strings.HasPrefix(k, "sequence_") || strings.HasPrefix(k, "triton_") || k == "headers" {
		return Invalid("the parameter %q is reserved, and overlapd does not offer what it asks for", Cut(k))
	}
	return nil
}

// CheckTensorParameter refuses a parameter of a tensor that asks for what
// overlapd does not offer.
func CheckTensorParameter[S string | []byte](key S) *Error {
	switch k := string(key); {
	case k == "classification":
		return Invalid("the parameter %q asks for what overlapd does not offer", k)
	case strings.HasPrefix(k, "shared_memory_"):
		return errSharedMemory
	}
	return nil
}

// Input is an input of a query, decoded. Its Data is what the request brought
// until the call is admitted, and lies in shared memory from then on. A request
// may bring Text instead: a JSON array that the elements are still to be read from,
// which begins at TextAt in the body.
type Input struct {
	Tensor
	Text     []byte
	TextAt   int
	Elements int64

	dims  [MaxRank]int64 // what Shape lies in
	room  int64          // bytes that it takes in shared memory at most
	given bool
}

// AddDimension appends a dimension to the shape and counts the elements.
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

// SetID takes the client's name for the query. It goes into logs, so it may hold
// nothing that is not printed.
func (c *Call) SetID(id []byte) *Error {
	if len(id) > MaxIDBytes {
		return Invalid(`"id" has %d bytes, the limit is %d`, len(id), MaxIDBytes)
	}
	if bytes.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Invalid(`"id" holds a character that is not printable`)
	}
	c.ID = append(c.ID[:0], id...)
	return nil
}

// AskVariant has only the variant of this name answer.
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
	return Invalid("service %s has no variant %q: ask for one of %s", s.Name, Cut(name), s.variants())
}

// AskAccuracy has only variants answer that are at least so accurate, any if it is 0.
func (c *Call) AskAccuracy(least float64) *Error {
	s := c.Service
	if err := s.hasVariants(ParameterLeastAccuracy); err != nil {
		return err
	}
	if !(least >= 0) || math.IsInf(least, 1) {
		return Invalid("the parameter %q must be a finite number from 0, not %v", ParameterLeastAccuracy, least)
	}
	highest := 0.0
	for i := range s.Variants {
		highest = max(highest, s.Variants[i].Accuracy)
	}
	if least > highest {
		return Invalid("the parameter %q is %v, and the highest accuracy of a variant of %s is %v: ask for that or less",
			ParameterLeastAccuracy, least, s.Name, highest)
	}
	c.LeastAccuracy = least
	return nil
}

// checkVariant returns an error if a call asks for a variant that is not accurate enough for it.
func (c *Call) checkVariant() *Error {
	if c.Variant < 0 {
		return nil
	}
	v := &c.Service.Variants[c.Variant]
	if v.Accuracy >= c.LeastAccuracy {
		return nil
	}
	return Invalid("the variant %s has an accuracy of %v, and the request wants at least %v: leave out %q or %q",
		v.Name, v.Accuracy, c.LeastAccuracy, ParameterVariant, ParameterLeastAccuracy)
}

// Give sets an input of the model. Its type, shape and data must be known, its
// data may still follow.
func (c *Call) Give(port int, in *Input) *Error {
	p, slot := &c.Signature.Inputs[port], &c.Inputs[port]
	switch {
	case slot.given:
		return Invalid("input %q is given twice", p.Name)
	case in.Type != p.Type:
		return Invalid("input %q is %s, the model wants %s", p.Name, in.Type.Protocol(), p.Type.Protocol())
	}
	rank := len(in.Shape)
	*slot = *in
	slot.given, slot.Name, slot.Shape = true, p.Name, slot.dims[:rank]
	if rank == 0 {
		slot.Elements = 1
	}
	return nil
}

// Ask adds an output of the model to those that are asked for. If none is
// added, all of them are: see AskAll.
func (c *Call) Ask(o Output) *Error {
	for i := range c.Outputs {
		if c.Outputs[i].Port == o.Port {
			return Invalid("output %q is asked for twice", c.Signature.Outputs[o.Port].Name)
		}
	}
	c.Outputs = append(c.Outputs, o)
	return nil
}

// AskAll asks for every output if none is asked for yet.
func (c *Call) AskAll(binary bool) {
	if len(c.Outputs) > 0 {
		return
	}
	for i := range c.Signature.Outputs {
		c.Outputs = append(c.Outputs, Output{Port: i, Binary: binary})
	}
}

// Check compares the inputs with the model and with each other, and what is asked of
// the variant that answers.
func (c *Call) Check() *Error {
	sig := c.Signature
	for n := range sig.Inputs {
		p, in := &sig.Inputs[n], &c.Inputs[n]
		if !in.given {
			return Invalid("input %q is missing", p.Name)
		}
		if err := c.checkShape(p, in); err != nil {
			return err
		}
		if err := in.checkBytes(); err != nil {
			return err
		}
		if sig.Batched && in.Shape[0] != c.Inputs[0].Shape[0] {
			return Invalid("input %q has batch size %d, input %q has %d",
				p.Name, in.Shape[0], sig.Inputs[0].Name, c.Inputs[0].Shape[0])
		}
	}
	return c.checkVariant()
}

// checkShape compares a shape with the model's, and dimensions of the same
// name with each other.
func (c *Call) checkShape(p *Port, in *Input) *Error {
	if p.AnyRank {
		return nil
	}
	if len(in.Shape) != len(p.Dims) {
		return Invalid("input %q has rank %d, the model wants %d", p.Name, len(in.Shape), len(p.Dims))
	}
	for i, want := range p.Dims {
		got := in.Shape[i]
		if want >= 0 && got != want {
			return Invalid("input %q has %d in dimension %d, the model wants %d", p.Name, got, i, want)
		}
		if link := p.link[i]; link >= 0 {
			if c.links[link] == 0 {
				c.links[link] = got
			}
			if c.links[link] != got {
				return Invalid("input %q has %d in dimension %d, another input has %d there",
					p.Name, got, i, c.links[link])
			}
		}
	}
	return nil
}

// The shortest JSON array of n numbers has 2n+1 bytes, of n strings 3n+1.
const (
	numbersPerByte = 2
	stringsPerByte = 3
)

// checkBytes compares what an input brings with what its shape needs, and sets
// how much room it takes. A shape that its text cannot fill is refused before
// memory is taken for it.
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
		return Invalid("input %q: binary_data_size is %d, its shape needs %d", in.Name, len(in.Data), in.room)
	case in.Text != nil && in.Elements > int64(len(in.Text))/each:
		return Invalid("input %q: its shape has %d elements, its data fewer", in.Name, in.Elements)
	}
	return nil
}

// NextString splits the first element off the data of a tensor of type BYTES. It
// reports false if the data ends before it.
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

// checkStrings follows the lengths in a binary tensor of type BYTES.
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
		return Invalid("input %q: its data has %d elements, its shape %d", in.Name, n, in.Elements)
	}
	return nil
}

// Admit holds a call that has been checked against the limits of its service
// and puts its inputs into shared memory. This is the one copy that is made of
// them: write puts the elements of an input into dst and returns how many bytes
// they took.
func (c *Call) Admit(write func(dst []byte, in *Input) (int, *Error)) *Error {
	s, sig := c.Service, c.Signature
	c.Size, c.SeqLen, c.Shape = 1, 0, c.shapeHash()
	if sig.Batched {
		c.Size = int(c.Inputs[0].Shape[0])
	}
	if sig.seq.input >= 0 {
		c.SeqLen = int(c.Inputs[sig.seq.input].Shape[sig.seq.dim])
	}
	if c.Size > s.MaxQueryBatch {
		return Invalid("the batch size is %d, the limit of this service %d", c.Size, s.MaxQueryBatch)
	}
	if s.MaxSeqLen > 0 && c.SeqLen > s.MaxSeqLen {
		return Invalid("the sequence length is %d, the limit of this service %d", c.SeqLen, s.MaxSeqLen)
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
	for i := range c.Inputs {
		in := &c.Inputs[i]
		at = Aligned(at)
		end := at + in.room
		c.TextBytes += len(in.Text)
		n, err := write(m.Bytes[at:end:end], in)
		if err != nil {
			s.Backend.Free(s, m)
			return err
		}
		in.Text, in.Data, in.Offset = nil, m.Bytes[at:at+int64(n):at+int64(n)], m.Offset+at
		at = end
	}
	c.Memory = m
	return nil
}

// room returns the bytes that all inputs take.
func (c *Call) room() (int64, bool) {
	var sum int64
	for i := range c.Inputs {
		n := c.Inputs[i].room
		if n > math.MaxInt64-Alignment-sum {
			return 0, false
		}
		sum = Aligned(sum) + n
	}
	return sum, true
}

// Aligned returns n, rounded up to the alignment of inputs in shared memory.
func Aligned(n int64) int64 { return (n + Alignment - 1) &^ (Alignment - 1) }

var shapeSeed = maphash.MakeSeed()

// shapeHash returns the hash of all input shapes without the batch dimension.
// It holds for this process only.
func (c *Call) shapeHash() uint64 {
	type link struct {
		before uint64
		value  int
	}
	h := uint64(len(c.Inputs))
	for i := range c.Inputs {
		dims := c.Inputs[i].Shape
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
