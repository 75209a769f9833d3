package models

import (
	"math/bits"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Initializer is a constant of the graph, usually a weight.
type Initializer struct {
	Name string
	// Raw is the TensorProto, or the SparseTensorProto if Sparse is set.
	Raw    []byte
	Sparse bool
	Type   DataType
	Dims   []int64
	// Bytes is the size of the elements in memory: in dense form if Sparse is set, and the sum
	// of the characters for strings.
	Bytes int64
	// External locates the data if they are not in Raw.
	External *external

	// at is the offset of Raw in the file.
	at int64
}

// elementBits returns the size of one element of t in a file, in bits. It returns 0 if the
// size varies or t is unknown. Types smaller than a byte are packed.
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

// initializer reads an initializer of a graph that is nested depth graphs deep. Only the main
// graph may have external data.
func (p *parser) initializer(g *graph, raw []byte, depth int) error {
	t, err := p.tensor(raw, depth == 0)
	if err != nil {
		return within(err, place("initializer", t.Name, len(g.Initializers)))
	}
	g.Initializers = append(g.Initializers, t)
	return nil
}

// tensor reads a tensor and checks that its data fit its shape. A tensor returned with an
// error is only good for naming it in a message.
func (p *parser) tensor(raw []byte, mayBeExternal bool) (Initializer, error) {
	// The capacity gives the offset only because nothing above has clipped a slice of the file.
	t := Initializer{Raw: clip(raw), at: int64(cap(p.data) - cap(raw))}
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
			m.err = refuse(errGraph, "it is stored in segments, which no runtime supports")
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
		return t, refuse(errGraph, "its element type %d is unknown", int32(t.Type))
	}
	elements, err := product(t.Dims)
	if err != nil {
		return t, err
	}
	if ext.given() {
		err = ext.resolve(p, &t, elements, data, mayBeExternal)
		return t, err
	}
	t.Bytes, err = data.check(t.Type, elements)
	return t, err
}

// dims reads the dimensions of a tensor and appends them to to.
func (p *parser) dims(m *message, to *[]int64) {
	var err error
	m.ints(func(d int64) bool {
		switch {
		case len(*to) == p.limits.Rank:
			err = refuse(ErrLimit, "it has more than %d dimensions", p.limits.Rank)
		case d < 0:
			err = refuse(errGraph, "its dimension %d is negative", d)
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

// indexTypes are the accepted types for the indices of a sparse tensor.
var indexTypes = []DataType{Int8, Int16, Int32, Int64}

// sparseInitializer reads a sparse initializer and appends it to g.
func (p *parser) sparseInitializer(g *graph, raw []byte) error {
	t, err := p.sparse(raw)
	if err != nil {
		return within(err, place("sparse initializer", t.Name, len(g.Initializers)))
	}
	g.Initializers = append(g.Initializers, t)
	return nil
}

// sparse reads a sparse tensor. Neither its values nor its indices may be external. Runtimes
// convert it to dense form, so the limit applies to its dense size.
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
		return t, refuse(ErrLimit, "expanded it has %d bytes, and the limit is %d", t.Bytes, p.limits.DenseBytes)
	}
	return t, checkSparse(t, values, indices, elements)
}

// checkSparse checks that each value has one index, either linear or with one element per
// dimension. ONNX requires int64 indices, but ONNX Runtime accepts, and itself writes, narrower
// types.
func checkSparse(t, values, indices Initializer, elements int64) error {
	switch {
	case values.Raw == nil, len(values.Dims) != 1, values.Dims[0] > elements:
		return refuse(errGraph, "its values are missing or do not match its shape %v", t.Dims)
	case indices.Raw == nil && values.Dims[0] == 0:
		return nil
	case indices.Raw == nil, !slices.Contains(indexTypes, indices.Type), len(indices.Dims) < 1, len(indices.Dims) > 2,
		indices.Dims[0] != values.Dims[0],
		len(indices.Dims) == 2 && indices.Dims[1] != int64(len(t.Dims)):
		return refuse(errGraph, "its indices are missing or do not match its %d values", values.Dims[0])
	}
	return nil
}

// payload counts the elements in each field of a TensorProto that may carry data. ONNX allows
// exactly one of these fields, and which one depends on the element type.
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

// check returns the size in memory of a tensor whose data are d. It returns an error if d does
// not hold exactly the given number of elements, in a field that is right for t.
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
	return refuse(errGraph, "its shape needs %d elements, but its data have another size or are in another field; the file may be damaged", elements)
}

// typedPayload returns the payload of a tensor of n elements without raw data. Types without a
// field of their own use int32_data, where types smaller than a byte are packed.
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

// Elements returns the number of elements of a tensor. It returns false if a dimension is
// negative or the number, with zero dimensions ignored, is too large for any machine. A zero
// must not hide such dimensions, because another reader may multiply in another order.
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
		return 0, refuse(ErrLimit, "its shape %v has more elements than memory can hold", dims)
	}
	return n, nil
}

// maxElements keeps the size in bits within int64 for the widest element type (128 bits).
const maxElements = 1 << 55

// tensorBytes returns the size of the elements in bytes, with packed types rounded up.
func tensorBytes(t DataType, elements int64) int64 {
	return (elements*elementBits(t) + 7) / 8
}
