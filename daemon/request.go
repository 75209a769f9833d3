package daemon

import (
	"hash/maphash"
	"math"
	"math/bits"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Limits on a request, besides those of the configuration.
const (
	maxIDBytes     = 1 << 10
	maxPriority    = math.MaxInt32
	maxParameters  = 64
	maxTimeoutUsec = math.MaxInt64 / int64(time.Microsecond)
)

// alignment of each input in shared memory.
const alignment = 64

// request is the decoded head of an inference request: everything but the
// tensors, of which it knows where in the body they are.
type request struct {
	id       []byte
	timeout  time.Duration
	priority int
	binary   bool // outputs that do not say are binary

	inputs  []requestInput  // in the order of the model
	order   []int           // inputs in the order of the request: that of their binary data
	outputs []requestOutput // in the order of the request; empty for all
	wanted  []asked         // what the request said of each output, in the order of the model
	links   []int64         // values of named dimensions, 0 where not met
	d       decoder
}

// asked is what a request says of an output.
type asked uint8

const (
	askedNot    asked = iota // it does not name it
	askedEither              // it names it
	askedJSON
	askedBinary
)

type requestInput struct {
	given    bool
	shape    [maxRank]int64
	rank     int
	elements int64
	data     []byte // JSON array, nil if the tensor is binary
	dataAt   int    // where in the body data is, for messages
	binary   []byte // the tensor's bytes, nil if it is JSON
	bytes    int64  // room that it takes in shared memory
}

func (in *requestInput) dims() []int64 { return in.shape[:in.rank] }

type requestOutput struct {
	port   int
	binary bool
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

func (r *request) reset(sig *signature) {
	r.id, r.timeout, r.priority, r.binary = r.id[:0], 0, 0, false
	r.inputs = resize(r.inputs, len(sig.inputs))
	r.order = r.order[:0]
	r.outputs = r.outputs[:0]
	r.wanted = resize(r.wanted, len(sig.outputs))
	r.links = resize(r.links, sig.links)
}

// forget drops what points into the body.
func (r *request) forget() {
	clear(r.inputs)
	r.d = decoder{}
}

// decode reads the head of a request. The first headBytes of the body are
// JSON, the rest is binary data.
func (r *request) decode(sig *signature, body []byte, headBytes int) *Error {
	r.reset(sig)
	r.d = decoder{scanner: scanner{b: body[:headBytes]}, r: r, sig: sig}
	if err := r.d.request(); err != nil {
		return err
	}
	if err := r.split(sig, body[headBytes:]); err != nil {
		return err
	}
	return r.check(sig)
}

// split hands each binary input its part of what follows the JSON.
func (r *request) split(sig *signature, rest []byte) *Error {
	for _, n := range r.order {
		in := &r.inputs[n]
		if in.data != nil {
			continue
		}
		if in.bytes > int64(len(rest)) {
			return invalid("input %q: binary_data_size %d goes beyond the end of the body", sig.inputs[n].name, in.bytes)
		}
		in.binary, rest = rest[:in.bytes:in.bytes], rest[in.bytes:]
	}
	if len(rest) > 0 {
		return invalid("%d bytes follow the last input of the body", len(rest))
	}
	return nil
}

// check compares the inputs with the model and with each other.
func (r *request) check(sig *signature) *Error {
	for n := range sig.inputs {
		p, in := &sig.inputs[n], &r.inputs[n]
		if !in.given {
			return invalid("input %q is missing", p.name)
		}
		if err := r.checkShape(p, in); err != nil {
			return err
		}
		if err := checkBytes(p, in); err != nil {
			return err
		}
		if sig.batched && in.shape[0] != r.inputs[0].shape[0] {
			return invalid("input %q has batch size %d, input %q has %d",
				p.name, in.shape[0], sig.inputs[0].name, r.inputs[0].shape[0])
		}
	}
	for _, p := range sig.outputs {
		if jsonless(p.typ) && r.asksJSON(sig, p.name) {
			return invalid("output %q is %s, which has no JSON form: ask for binary data", p.name, p.typ.Protocol())
		}
	}
	return nil
}

// asksJSON reports whether the request wants an output, and not as binary.
func (r *request) asksJSON(sig *signature, name string) bool {
	if len(r.outputs) == 0 {
		return !r.binary
	}
	for _, o := range r.outputs {
		if sig.outputs[o.port].name == name {
			return !o.binary
		}
	}
	return false
}

// checkShape compares a shape with the model's, and dimensions of the same
// name with each other.
func (r *request) checkShape(p *port, in *requestInput) *Error {
	if p.anyRank {
		return nil
	}
	if in.rank != len(p.dims) {
		return invalid("input %q has rank %d, the model wants %d", p.name, in.rank, len(p.dims))
	}
	for i, want := range p.dims {
		got := in.shape[i]
		if want >= 0 && got != want {
			return invalid("input %q has %d in dimension %d, the model wants %d", p.name, got, i, want)
		}
		if link := p.link[i]; link >= 0 {
			if r.links[link] == 0 {
				r.links[link] = got
			}
			if r.links[link] != got {
				return invalid("input %q has %d in dimension %d, another input has %d there",
					p.name, got, i, r.links[link])
			}
		}
	}
	return nil
}

// checkBytes compares what an input brings with what its shape needs, and
// sets how much room it takes.
func checkBytes(p *port, in *requestInput) *Error {
	if p.typ == models.String {
		if in.data == nil {
			return checkStrings(p, in)
		}
		in.bytes = int64(len(in.data)) + stringHead*in.elements
		return fits(p, in, stringsPerByte)
	}
	hi, size := bits.Mul64(uint64(in.elements), uint64(p.typ.Bytes()))
	if hi != 0 || size > math.MaxInt64 {
		return invalid("input %q: its shape overflows", p.name)
	}
	if in.data != nil {
		in.bytes = int64(size)
		return fits(p, in, numbersPerByte)
	}
	if in.bytes != int64(size) {
		return invalid("input %q: binary_data_size is %d, its shape needs %d", p.name, in.bytes, size)
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
func fits(p *port, in *requestInput, bytesEach int64) *Error {
	if in.elements > int64(len(in.data))/bytesEach {
		return invalid("input %q: its shape has %d elements, its data fewer", p.name, in.elements)
	}
	return nil
}

// dimensions returns the batch dimension and the sequence length.
func (r *request) dimensions(sig *signature) (size, seqLen int) {
	size = 1
	if sig.batched {
		size = int(r.inputs[0].shape[0])
	}
	if sig.seq.input >= 0 {
		seqLen = int(r.inputs[sig.seq.input].shape[sig.seq.dim])
	}
	return size, seqLen
}

// memoryBytes returns the room that all inputs take.
func (r *request) memoryBytes() (int64, bool) {
	var sum int64
	for i := range r.inputs {
		n := r.inputs[i].bytes
		if n > math.MaxInt64-alignment-sum {
			return 0, false
		}
		sum = aligned(sum) + n
	}
	return sum, true
}

func aligned(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

var shapeSeed = maphash.MakeSeed()

// shapeHash returns the hash of all input shapes without the batch dimension.
// It holds for this process only.
func (r *request) shapeHash(batched bool) uint64 {
	h := uint64(len(r.inputs))
	for i := range r.inputs {
		dims := r.inputs[i].dims()
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
