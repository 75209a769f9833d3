package models

import (
	"math/bits"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Initializer is a constant of the graph.
type Initializer struct {
	Name     string
	Raw      []byte // TensorProto, or SparseTensorProto if Sparse
	Sparse   bool
	Type     DataType
	Dims     []int64
	Bytes    int64     // its elements in memory; of strings, their characters; spread out if Sparse
	External *external // where its data lie if not in Raw

	at int64 // where Raw begins in the file
}

// elementBits returns the size of one element of t in a file, 0 if it varies
// or t is not known. Types below a byte are packed.
func elementBits(t DataType) int64 {
	switch t {
	case 17, 18, 19, 20, 24: // the float8 types
		return 8
	case 27, 28: // the float6 types
		return 6
	case 21, 22, 23: // uint4, int4, float4e2m1
		return 4
	case 25, 26: // uint2, int2
		return 2
	}
	return int64(t.Bytes()) * 8
}

// initializer reads an initializer of a graph that lies depth graphs deep.
func (p *parser) initializer(g *graph, raw []byte, depth int) error {
	t, err := p.tensor(raw, depth == 0)
	if err != nil {
		return within(err, place("initializer", t.Name, len(g.Initializers)))
	}
	g.Initializers = append(g.Initializers, t)
	return nil
}

// tensor reads a tensor and verifies that its data fit its shape. What it
// returns with an error is good for a message only.
func (p *parser) tensor(raw []byte, mayBeExternal bool) (Initializer, error) {
	t := Initializer{Raw: clip(raw), at: int64(cap(p.data) - cap(raw))} // no slice of the file was clipped yet
	if err := p.spend(&p.left.Tensors, p.limits.Tensors, 1, "tensors"); err != nil {
		return t, err
	}
	var data payload
	var ext externalEntries
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			p.dims(&m, &t.Dims)
		case 2:
			t.Type = DataType(m.int())
		case 3:
			m.err = refuse(ErrGraph, "it is stored in segments, which no runtime reads")
		case 8:
			t.Name = m.name()
		case 13:
			m.each(func(raw []byte) error { return ext.add(p, raw) })
		case 14:
			ext.location = m.int()
		default:
			data.add(&m)
		}
	}
	if m.err != nil {
		return t, m.err
	}
	if t.Type != String && elementBits(t.Type) == 0 {
		return t, refuse(ErrGraph, "its element type %d is not known", int32(t.Type))
	}
	elements, err := product(t.Dims)
	if err != nil {
		return t, err
	}
	if ext.given() {
		return t, ext.resolve(p, &t, elements, data, mayBeExternal)
	}
	t.Bytes, err = data.check(t.Type, elements)
	return t, err
}

// dims reads the dimensions of a tensor.
func (p *parser) dims(m *message, to *[]int64) {
	var err error
	m.ints(func(d int64) bool {
		switch {
		case len(*to) == p.limits.Rank:
			err = refuse(ErrLimit, "it has more than %d dimensions", p.limits.Rank)
		case d < 0:
			err = refuse(ErrGraph, "its dimension %d is negative", d)
		default:
			err = p.spend(&p.left.Dims, p.limits.Dims, 1, "dimensions")
			*to = append(*to, d)
		}
		return err == nil
	})
	if m.err == nil {
		m.err = err
	}
}

// indexTypes are what the indices of a sparse tensor may be.
var indexTypes = []DataType{Int8, Int16, Int32, Int64}

func (p *parser) sparseInitializer(g *graph, raw []byte) error {
	t, err := p.sparse(raw)
	if err != nil {
		return within(err, place("sparse initializer", t.Name, len(g.Initializers)))
	}
	g.Initializers = append(g.Initializers, t)
	return nil
}

// sparse reads a sparse tensor. Neither of its parts may be external, and it
// must fit into memory where a runtime spreads it out.
func (p *parser) sparse(raw []byte) (Initializer, error) {
	t := Initializer{Raw: clip(raw), Sparse: true}
	var values, indices Initializer
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			m.once(func(raw []byte) (err error) { values, err = p.tensor(raw, false); return err })
			t.Name, t.Type = values.Name, values.Type
		case 2:
			m.once(func(raw []byte) (err error) { indices, err = p.tensor(raw, false); return err })
		case 3:
			p.dims(&m, &t.Dims)
		}
	}
	if m.err != nil {
		return t, m.err
	}
	elements, err := product(t.Dims)
	if err != nil {
		return t, err
	}
	t.Bytes = tensorBytes(t.Type, elements)
	if t.Bytes > p.limits.DenseBytes {
		return t, refuse(ErrLimit, "spread out it has %d bytes, at most %d are allowed", t.Bytes, p.limits.DenseBytes)
	}
	return t, checkSparse(t, values, indices, elements)
}

// checkSparse verifies that there is one index, or one per dimension, for
// each value. ONNX asks for int64 there; ONNX Runtime takes, and itself
// writes, narrower ones.
func checkSparse(t, values, indices Initializer, elements int64) error {
	switch {
	case values.Raw == nil, len(values.Dims) != 1, values.Dims[0] > elements:
		return refuse(ErrGraph, "its values are missing or do not fit its shape %v", t.Dims)
	case indices.Raw == nil && values.Dims[0] == 0:
		return nil
	case indices.Raw == nil, !slices.Contains(indexTypes, indices.Type), len(indices.Dims) < 1, len(indices.Dims) > 2,
		indices.Dims[0] != values.Dims[0],
		len(indices.Dims) == 2 && indices.Dims[1] != int64(len(t.Dims)):
		return refuse(ErrGraph, "its indices are missing or do not fit its %d values", values.Dims[0])
	}
	return nil
}

// payload counts what a TensorProto holds in each of the fields that may
// carry its data.
type payload struct {
	raw, floats, int32s, int64s, doubles, uint64s int64

	strings, characters int64
	hasRaw              bool
}

func (d *payload) add(m *message) {
	switch m.num {
	case 4:
		d.floats += m.count(protowire.Fixed32Type, 4)
	case 5:
		d.int32s += m.count(protowire.VarintType, 0)
	case 6:
		d.strings++
		d.characters += int64(len(m.body()))
	case 7:
		d.int64s += m.count(protowire.VarintType, 0)
	case 9:
		d.raw, d.hasRaw = int64(len(m.body())), true
	case 10:
		d.doubles += m.count(protowire.Fixed64Type, 8)
	case 11:
		d.uint64s += m.count(protowire.VarintType, 0)
	}
}

// check returns the bytes in memory of a tensor whose data are d.
func (d *payload) check(t DataType, elements int64) (int64, error) {
	if t == String {
		want := payload{strings: elements, characters: d.characters}
		return d.characters, d.equal(want, elements)
	}
	bytes := tensorBytes(t, elements)
	if d.hasRaw {
		return bytes, d.equal(payload{raw: bytes, hasRaw: true}, elements)
	}
	return bytes, d.equal(typedPayload(t, elements), elements)
}

func (d *payload) equal(want payload, elements int64) error {
	if *d == want {
		return nil
	}
	return refuse(ErrGraph, "its shape asks for %d elements, its data have another size or stand in another field; the file may be damaged", elements)
}

// typedPayload returns what a tensor without raw data holds.
func typedPayload(t DataType, n int64) payload {
	switch t {
	case Float32:
		return payload{floats: n}
	case Complex64:
		return payload{floats: 2 * n}
	case Int64:
		return payload{int64s: n}
	case Float64:
		return payload{doubles: n}
	case Complex128:
		return payload{doubles: 2 * n}
	case Uint32, Uint64:
		return payload{uint64s: n}
	}
	perNumber := max(1, 8/elementBits(t))
	return payload{int32s: (n + perNumber - 1) / perNumber}
}

// Elements returns how many elements a tensor has, and false for what no machine can
// hold, even where a dimension of zero would hide it.
func Elements(dims []int64) (int64, bool) {
	n, zero := uint64(1), false
	for _, d := range dims {
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if d < 0 || hi != 0 || lo > maxElements {
			return 0, false
		}
		n = lo
	}
	if zero {
		return 0, true
	}
	return int64(n), true
}

func product(dims []int64) (int64, error) {
	n, ok := Elements(dims)
	if !ok {
		return 0, refuse(ErrLimit, "its shape %v has more elements than fit into memory", dims)
	}
	return n, nil
}

// maxElements keeps the size in bits of the widest element countable.
const maxElements = 1 << 55

func tensorBytes(t DataType, elements int64) int64 {
	return (elements*elementBits(t) + 7) / 8
}
