package daemon

import (
	"bytes"
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

// decoder reads the JSON of a request into r. It keeps the state of the
// objects that it is inside of itself, so that reading takes no memory.
type decoder struct {
	scanner
	r    *request
	sig  *signature
	seen int       // members of the object that is being read
	in   inputHead // input that is being read
	out  outputHead
	left int // parameters that may still come
}

// Members of the request that may come only once.
const (
	hasID = 1 << iota
	hasParameters
	hasInputs
	hasOutputs
	hasName
	hasShape
	hasType
	hasData
	hasTimeout
	hasPriority
	hasBinary
	hasSize
)

// once notes that a member came, and refuses it the second time.
func (d *decoder) once(member int, key []byte) *Error {
	if d.seen&member != 0 {
		return invalid("%q is given twice (byte %d)", key, d.i)
	}
	d.seen |= member
	return nil
}

// members calls member for each member of an object.
func (d *decoder) members(what string, member func(d *decoder, key []byte) *Error) *Error {
	if !d.take('{') {
		return invalid("%s must be an object (byte %d)", what, d.i)
	}
	outer := d.seen
	d.seen = 0
	for first := true; ; first = false {
		more, err := d.more(first, '}')
		if err != nil {
			return err
		}
		if !more {
			break
		}
		key, err := d.key()
		if err != nil {
			return err
		}
		if err := member(d, key); err != nil {
			return err
		}
	}
	d.seen = outer
	return nil
}

// elements calls element for each element of an array.
func (d *decoder) elements(what string, element func(d *decoder) *Error) *Error {
	if !d.take('[') {
		return invalid("%s must be an array (byte %d)", what, d.i)
	}
	for first := true; ; first = false {
		more, err := d.more(first, ']')
		if !more || err != nil {
			return err
		}
		if err := element(d); err != nil {
			return err
		}
	}
}

func (d *decoder) request() *Error {
	if err := d.members("the request", (*decoder).requestMember); err != nil {
		return err
	}
	if err := d.end(); err != nil {
		return err
	}
	for i := range d.r.outputs {
		o := &d.r.outputs[i]
		asked := d.r.wanted[o.port]
		o.binary = asked == askedBinary || asked == askedEither && d.r.binary
	}
	return nil
}

func (d *decoder) requestMember(key []byte) *Error {
	switch string(key) {
	case "id":
		if err := d.once(hasID, key); err != nil {
			return err
		}
		return d.id()
	case "parameters":
		if err := d.once(hasParameters, key); err != nil {
			return err
		}
		return d.parameters((*decoder).requestParameter)
	case "inputs":
		if err := d.once(hasInputs, key); err != nil {
			return err
		}
		return d.elements(`"inputs"`, (*decoder).input)
	case "outputs":
		if err := d.once(hasOutputs, key); err != nil {
			return err
		}
		return d.elements(`"outputs"`, (*decoder).output)
	}
	return d.skip(2)
}

// id takes the client's name for the query. It goes into logs, so it holds
// nothing that is not printed.
func (d *decoder) id() *Error {
	v, err := d.str(nil)
	if err != nil {
		return err
	}
	if len(v) > maxIDBytes {
		return invalid(`"id" has %d bytes, the limit is %d`, len(v), maxIDBytes)
	}
	for s := v; len(s) > 0; {
		c, size := utf8.DecodeRune(s)
		if !unicode.IsPrint(c) {
			return invalid(`"id" holds a character that is not printable`)
		}
		s = s[size:]
	}
	d.r.id = append(d.r.id[:0], v...)
	return nil
}

// parameters reads an object of parameters and counts them.
func (d *decoder) parameters(member func(d *decoder, key []byte) *Error) *Error {
	d.left = maxParameters
	return d.members(`"parameters"`, member)
}

// parameter counts a parameter that overlapd does not know, and skips it.
func (d *decoder) parameter(depth int) *Error {
	if d.left--; d.left < 0 {
		return invalid("more than %d parameters", maxParameters)
	}
	return d.skip(depth)
}

func (d *decoder) requestParameter(key []byte) *Error {
	switch string(key) {
	case "timeout":
		if err := d.once(hasTimeout, key); err != nil {
			return err
		}
		usec, err := d.integer(`the parameter "timeout" (microseconds)`)
		if err != nil {
			return err
		}
		if usec < 0 || usec > maxTimeoutUsec {
			return invalid(`the parameter "timeout" must be in [0, %d] microseconds, not %d`, maxTimeoutUsec, usec)
		}
		d.r.timeout = time.Duration(usec) * time.Microsecond
		return nil
	case "priority":
		if err := d.once(hasPriority, key); err != nil {
			return err
		}
		p, err := d.integer(`the parameter "priority"`)
		if err != nil {
			return err
		}
		if p < 0 || p > maxPriority {
			return invalid(`the parameter "priority" must be in [0, %d], not %d`, maxPriority, p)
		}
		d.r.priority = int(p)
		return nil
	case "binary_data_output":
		if err := d.once(hasBinary, key); err != nil {
			return err
		}
		v, err := d.boolean(`the parameter "binary_data_output"`)
		d.r.binary = v
		return err
	}
	if reserved(key) {
		return invalid("the parameter %q is reserved, and overlapd does not offer what it asks for", cut(key))
	}
	return d.parameter(3)
}

// reserved reports whether a request parameter has a meaning in Triton that
// would be lost if it were ignored.
func reserved(key []byte) bool {
	return bytes.HasPrefix(key, []byte("sequence_")) || bytes.HasPrefix(key, []byte("triton_")) ||
		string(key) == "headers"
}

// unsupported reports whether a tensor's parameter asks for what overlapd
// does not offer.
func unsupported(key []byte) bool {
	return string(key) == "classification" || bytes.HasPrefix(key, []byte("shared_memory_"))
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
