package models

import "slices"

// indexTypes are what the indices of a sparse tensor may be.
var indexTypes = []DataType{Int8, Int16, Int32, Int64}

func (p *parser) sparseInitializer(g *Graph, raw []byte) error {
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
