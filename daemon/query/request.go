package query

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/models"
)

// Limits on a request, besides those of the configuration.
const (
	MaxIDBytes     = 1 << 10
	MaxPriority    = math.MaxInt32
	MaxParameters  = 64
	MaxTimeoutUsec = math.MaxInt64 / int64(time.Microsecond)
)

// Request is the decoded head of an inference request: everything but the
// tensors, of which it knows where in the body they are.
type Request struct {
	ID       []byte
	Timeout  time.Duration
	Priority int
	Binary   bool // outputs that do not say are binary

	Inputs  []Input  // in the order of the model
	Outputs []Output // in the order of the request; empty for all
	Wanted  []Asked  // what the request said of each output, in the order of the model

	links []int64 // values of named dimensions, 0 where not met
}

// Asked is what a request says of an output.
type Asked uint8

const (
	AskedNot    Asked = iota // it does not name it
	AskedEither              // it names it
	AskedJSON
	AskedBinary
)

// Input is an input as the request brings it.
type Input struct {
	Given    bool
	Elements int64
	Text     []byte // JSON array, nil if the tensor is binary
	TextAt   int    // where in the body Text is, for messages
	Data     []byte // the tensor's bytes, nil if it is JSON
	Bytes    int64  // room that it takes in shared memory

	shape [MaxRank]int64
	rank  int
}

// Shape returns the dimensions.
func (in *Input) Shape() []int64 { return in.shape[:in.rank] }

// Output is an output that is asked for.
type Output struct {
	Port   int
	Binary bool
}

func Resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// Reset empties the request for one to a model.
func (r *Request) Reset(sig *Signature) {
	r.ID, r.Timeout, r.Priority, r.Binary = r.ID[:0], 0, 0, false
	r.Inputs = Resize(r.Inputs, len(sig.Inputs))
	r.Outputs = r.Outputs[:0]
	r.Wanted = Resize(r.Wanted, len(sig.Outputs))
	r.links = Resize(r.links, sig.links)
}

// Forget drops what points into the body.
func (r *Request) Forget() { clear(r.Inputs) }

// Check compares the inputs with the model and with each other.
func (r *Request) Check(sig *Signature) *Error {
	for n := range sig.Inputs {
		p, in := &sig.Inputs[n], &r.Inputs[n]
		if !in.Given {
			return Invalid("input %q is missing", p.Name)
		}
		if err := r.checkShape(p, in); err != nil {
			return err
		}
		if err := checkBytes(p, in); err != nil {
			return err
		}
		if sig.Batched && in.shape[0] != r.Inputs[0].shape[0] {
			return Invalid("input %q has batch size %d, input %q has %d",
				p.Name, in.shape[0], sig.Inputs[0].Name, r.Inputs[0].shape[0])
		}
	}
	for _, p := range sig.Outputs {
		if Jsonless(p.Type) && r.asksJSON(sig, p.Name) {
			return Invalid("output %q is %s, which has no JSON form: ask for binary data", p.Name, p.Type.Protocol())
		}
	}
	return nil
}

// asksJSON reports whether the request wants an output, and not as binary.
func (r *Request) asksJSON(sig *Signature, name string) bool {
	if len(r.Outputs) == 0 {
		return !r.Binary
	}
	for _, o := range r.Outputs {
		if sig.Outputs[o.Port].Name == name {
			return !o.Binary
		}
	}
	return false
}

// checkShape compares a shape with the model's, and dimensions of the same
// name with each other.
func (r *Request) checkShape(p *Port, in *Input) *Error {
	if p.AnyRank {
		return nil
	}
	if in.rank != len(p.Dims) {
		return Invalid("input %q has rank %d, the model wants %d", p.Name, in.rank, len(p.Dims))
	}
	for i, want := range p.Dims {
		got := in.shape[i]
		if want >= 0 && got != want {
			return Invalid("input %q has %d in dimension %d, the model wants %d", p.Name, got, i, want)
		}
		if link := p.link[i]; link >= 0 {
			if r.links[link] == 0 {
				r.links[link] = got
			}
			if r.links[link] != got {
				return Invalid("input %q has %d in dimension %d, another input has %d there",
					p.Name, got, i, r.links[link])
			}
		}
	}
	return nil
}

// checkBytes compares what an input brings with what its shape needs, and
// sets how much room it takes.
func checkBytes(p *Port, in *Input) *Error {
	if p.Type == models.String {
		if in.Text == nil {
			return checkStrings(p, in)
		}
		in.Bytes = int64(len(in.Text)) + StringHead*in.Elements
		return fits(p, in, stringsPerByte)
	}
	hi, size := bits.Mul64(uint64(in.Elements), uint64(p.Type.Bytes()))
	if hi != 0 || size > math.MaxInt64 {
		return Invalid("input %q: its shape overflows", p.Name)
	}
	if in.Text != nil {
		in.Bytes = int64(size)
		return fits(p, in, numbersPerByte)
	}
	if in.Bytes != int64(size) {
		return Invalid("input %q: binary_data_size is %d, its shape needs %d", p.Name, in.Bytes, size)
	}
	return nil
}

// The shortest JSON array of n numbers has 2n+1 bytes, of n strings 3n+1.
const (
	numbersPerByte = 2
	stringsPerByte = 3
)

// fits refuses a shape that the data cannot fill before memory is taken for
// it.
func fits(p *Port, in *Input, bytesEach int64) *Error {
	if in.Elements > int64(len(in.Text))/bytesEach {
		return Invalid("input %q: its shape has %d elements, its data fewer", p.Name, in.Elements)
	}
	return nil
}

// Dimensions returns the batch dimension and the sequence length.
func (r *Request) Dimensions(sig *Signature) (size, seqLen int) {
	size = 1
	if sig.Batched {
		size = int(r.Inputs[0].shape[0])
	}
	if sig.seq.input >= 0 {
		seqLen = int(r.Inputs[sig.seq.input].shape[sig.seq.dim])
	}
	return size, seqLen
}

// MemoryBytes returns the room that all inputs take.
func (r *Request) MemoryBytes() (int64, bool) {
	var sum int64
	for i := range r.Inputs {
		n := r.Inputs[i].Bytes
		if n > math.MaxInt64-Alignment-sum {
			return 0, false
		}
		sum = Aligned(sum) + n
	}
	return sum, true
}

func Aligned(n int64) int64 { return (n + Alignment - 1) &^ (Alignment - 1) }

var shapeSeed = maphash.MakeSeed()

// ShapeHash returns the hash of all input shapes without the batch dimension.
// It holds for this process only.
func (r *Request) ShapeHash(batched bool) uint64 {
	h := uint64(len(r.Inputs))
	for i := range r.Inputs {
		dims := r.Inputs[i].Shape()
		if batched {
			dims = dims[1:]
		}
		h = maphash.Comparable(shapeSeed, shapeLink{h, len(dims)})
		for _, d := range dims {
			h = maphash.Comparable(shapeSeed, shapeLink{h, int(d)})
		}
	}
	return h
}

type shapeLink struct {
	before uint64
	value  int
}

// Jsonless reports whether the protocol carries a type only as binary data.
func Jsonless(t models.DataType) bool { return t == models.Float16 || t == models.BFloat16 }

// StringHead is the length before each element of a tensor of type BYTES.
const StringHead = 4

// checkStrings follows the lengths in a binary tensor of type BYTES.
func checkStrings(p *Port, in *Input) *Error {
	rest, n := in.Data, int64(0)
	for ; len(rest) > 0; n++ {
		if len(rest) < StringHead {
			return Invalid("input %q: its data ends within the length of element %d", p.Name, n)
		}
		size := uint64(binary.LittleEndian.Uint32(rest))
		if rest = rest[StringHead:]; size > uint64(len(rest)) {
			return Invalid("input %q: element %d goes beyond the end of its data", p.Name, n)
		}
		rest = rest[size:]
	}
	if n != in.Elements {
		return Invalid("input %q: its data has %d elements, its shape %d", p.Name, n, in.Elements)
	}
	return nil
}

// AddDimension takes in the next dimension of a shape and counts the elements,
// of which there is one before.
func (in *Input) AddDimension(v int64) *Error {
	switch {
	case in.rank == MaxRank:
		return Invalid("a shape has more than %d dimensions", MaxRank)
	case v < 1:
		return Invalid("a dimension must be at least 1, not %d", v)
	case v > math.MaxInt64/in.Elements:
		return Invalid("the elements of a shape overflow")
	}
	in.shape[in.rank] = v
	in.rank++
	in.Elements *= v
	return nil
}

// SetID takes the client's name for the query. It goes into logs, so it may hold
// nothing that is not printed.
func (r *Request) SetID(id []byte) *Error {
	if len(id) > MaxIDBytes {
		return Invalid(`"id" has %d bytes, the limit is %d`, len(id), MaxIDBytes)
	}
	for rest := id; len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		if !unicode.IsPrint(c) {
			return Invalid(`"id" holds a character that is not printable`)
		}
		rest = rest[size:]
	}
	r.ID = append(r.ID[:0], id...)
	return nil
}

// FillOutputs names every output if the request named none.
func (r *Request) FillOutputs(sig *Signature) {
	if len(r.Outputs) > 0 {
		return
	}
	for i := range sig.Outputs {
		r.Outputs = append(r.Outputs, Output{Port: i, Binary: r.Binary})
	}
}
