package models

import "google.golang.org/protobuf/encoding/protowire"

// ValueInfo is what a file declares of a value.
type ValueInfo struct {
	Name string
	Raw  []byte // ValueInfoProto
	Type Type   // of KindUnknown if the file does not say
}

func (p *parser) valueInfos(to *[]ValueInfo, kind string, raw []byte) error {
	if err := p.spend(&p.left.ValueInfos, p.limits.ValueInfos, 1, "inputs, outputs and values"); err != nil {
		return err
	}
	v := ValueInfo{Raw: clip(raw)}
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			v.Name = m.name()
		case 2:
			m.once(func(raw []byte) (err error) { v.Type, err = p.valueType(raw, 0); return err })
		}
	}
	if m.err != nil {
		return within(m.err, place(kind, v.Name, len(*to)))
	}
	*to = append(*to, v)
	return nil
}

// typeFields maps the fields of a TypeProto to kinds.
var typeFields = map[protowire.Number]Kind{
	1: KindTensor, 4: KindSequence, 5: KindMap, 8: KindSparseTensor, 9: KindOptional,
}

func (p *parser) valueType(raw []byte, depth int) (Type, error) {
	var t Type
	m := message{p: p, rest: raw}
	for m.next() {
		kind := typeFields[m.num]
		if kind == KindUnknown {
			continue
		}
		if t.Kind != KindUnknown {
			m.err = refuse(ErrNotONNX, "a type is of two kinds")
			break
		}
		t.Kind = kind
		m.once(func(raw []byte) error { return p.typeBody(&t, raw, depth) })
	}
	return t, m.err
}

// typeBody reads what stands inside a TypeProto into t, whose kind is known.
func (p *parser) typeBody(t *Type, raw []byte, depth int) error {
	item := func(raw []byte) error {
		depth, err := p.deeper(depth, "types")
		if err != nil {
			return err
		}
		of, err := p.valueType(raw, depth)
		t.Item = &of
		return err
	}
	m := message{p: p, rest: raw}
	for m.next() {
		switch {
		case t.Kind == KindTensor || t.Kind == KindSparseTensor:
			switch m.num {
			case 1:
				t.Elem = DataType(m.int())
			case 2:
				m.once(func(raw []byte) error { return p.shape(t, raw) })
			}
		case t.Kind == KindMap && m.num == 1:
			t.Key = DataType(m.int())
		case t.Kind == KindMap && m.num == 2, t.Kind != KindMap && m.num == 1:
			m.once(item)
		}
	}
	if t.Item == nil && t.Kind != KindTensor && t.Kind != KindSparseTensor {
		t.Item = &Type{}
	}
	return m.err
}

func (p *parser) shape(t *Type, raw []byte) error {
	t.HasShape = true
	m := message{p: p, rest: raw}
	for m.next() {
		if m.num == 1 {
			m.each(func(raw []byte) error { return p.dim(t, raw) })
		}
	}
	return m.err
}

func (p *parser) dim(t *Type, raw []byte) error {
	if len(t.Shape) == p.limits.Rank {
		return refuse(ErrLimit, "it has more than %d dimensions", p.limits.Rank)
	}
	if err := p.spend(&p.left.Dims, p.limits.Dims, 1, "dimensions"); err != nil {
		return err
	}
	d := Dim{Value: -1}
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			d = Dim{Value: max(m.int(), -1)} // some writers say -1 for "not fixed"
		case 2:
			d = Dim{Value: -1, Name: m.name()}
		}
	}
	t.Shape = append(t.Shape, d)
	return m.err
}
