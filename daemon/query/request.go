package query

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/models"
)

// Limits on a request, besides those of the configuration.
const (
	MaxIDBytes     = 1 << 10
	MaxPriority    = math.MaxInt32
	MaxParameters  = 64 // of a request, and of each tensor
	MaxTimeoutUsec = math.MaxInt64 / int64(time.Microsecond)
)

// StringHead is the length before each element of a tensor of type BYTES.
const StringHead = 4

// BinaryOnly reports whether the protocols carry a type only as bytes, neither as
// JSON nor as typed contents.
func BinaryOnly(t models.DataType) bool { return t == models.Float16 || t == models.BFloat16 }

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
	if k := string(key); k == "classification" || strings.HasPrefix(k, "shared_memory_") {
		return Invalid("the parameter %q asks for what overlapd does not offer", Cut(k))
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
	for rest := id; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if !unicode.IsPrint(r) {
			return Invalid(`"id" holds a character that is not printable`)
		}
		rest = rest[size:]
	}
	c.ID = append(c.ID[:0], id...)
	return nil
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

// Check compares the inputs with the model and with each other.
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
	return nil
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

// checkStrings follows the lengths in a binary tensor of type BYTES.
func (in *Input) checkStrings() *Error {
	rest, n := in.Data, int64(0)
	for ; len(rest) > 0; n++ {
		if len(rest) < StringHead {
			return Invalid("input %q: its data ends within the length of element %d", in.Name, n)
		}
		size := uint64(binary.LittleEndian.Uint32(rest))
		if rest = rest[StringHead:]; size > uint64(len(rest)) {
			return Invalid("input %q: element %d goes beyond the end of its data", in.Name, n)
		}
		rest = rest[size:]
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
	s := c.Service
	c.dimensions()
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

// dimensions sets the batch dimension, the sequence length and the hash of the
// shapes.
func (c *Call) dimensions() {
	sig := c.Signature
	c.Size, c.SeqLen = 1, 0
	if sig.Batched {
		c.Size = int(c.Inputs[0].Shape[0])
	}
	if sig.seq.input >= 0 {
		c.SeqLen = int(c.Inputs[sig.seq.input].Shape[sig.seq.dim])
	}
	c.Shape = c.shapeHash()
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
