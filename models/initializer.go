package models

import (
	"encoding/binary"
)

// Initializer is a constant of the graph.
type Initializer struct {
	Name     string
	Raw      []byte // TensorProto, or SparseTensorProto if Sparse
	Sparse   bool
	Type     DataType
	Dims     []int64
	Bytes    int64     // its elements in memory; of strings, their characters; spread out if Sparse
	External *External // where its data lie if not in Raw
}

// int64s bounds what Int64s decodes: it is meant for shapes, axes and the
// like.
const int64s = 1024

// Int64s returns the elements of a small tensor of int32 or int64 whose data
// lie in the file.
func (i Initializer) Int64s() ([]int64, bool) {
	if i.Sparse || i.External != nil || i.Bytes > int64s*8 || i.Type != Int32 && i.Type != Int64 {
		return nil, false
	}
	n := int(i.Bytes) / i.Type.Bytes()
	v := make([]int64, 0, n)
	m := message{rest: i.Raw}
	for m.next() {
		switch m.num {
		case 5, 7:
			m.ints(func(e int64) bool { v = append(v, e); return len(v) < n })
		case 9:
			v = appendInt64s(v, m.body(), i.Type)
		}
	}
	return v, m.err == nil && len(v) == n
}

func appendInt64s(v []int64, raw []byte, t DataType) []int64 {
	for ; len(raw) >= t.Bytes(); raw = raw[t.Bytes():] {
		if t == Int32 {
			v = append(v, int64(int32(binary.LittleEndian.Uint32(raw))))
		} else {
			v = append(v, int64(binary.LittleEndian.Uint64(raw)))
		}
	}
	return v
}

// elementBits returns the size of one element of t in a file, 0 if it varies
// or t is not known. Types below a byte are packed.
func elementBits(t DataType) int64 {
	switch t {
	case 17, 18, 19, 20, 24: // the float8 types
		return 8
	case 21, 22, 23: // uint4, int4, float4e2m1
		return 4
	case 25, 26: // uint2, int2
		return 2
	}
	return int64(t.Bytes()) * 8
}

// initializer reads an initializer of a graph that lies depth graphs deep.
func (p *parser) initializer(g *Graph, raw []byte, depth int) error {
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
	t := Initializer{Raw: clip(raw)}
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
			m.each(func(raw []byte) error { return p.externalEntry(&ext, raw) })
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
		return t, p.external(&t, ext, elements, data, mayBeExternal)
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
