package models

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// AttributeKind is the type of an attribute, numbered as in ONNX
// (AttributeProto.AttributeType).
type AttributeKind int32

// The kinds of attribute that overlapd reads the value of.
const (
	AttributeInt    AttributeKind = 2
	AttributeString AttributeKind = 3
	AttributeTensor AttributeKind = 4
	AttributeGraph  AttributeKind = 5
	AttributeInts   AttributeKind = 7
)

// attributeInts bounds what Ints decodes.
const attributeInts = 1 << 16

// Attribute is one attribute of a node. Its value is decoded when it is asked
// for.
type Attribute struct {
	Name string
	Kind AttributeKind
	Raw  []byte // AttributeProto

	subgraphs bool
}

// Int returns the value of an integer attribute.
func (a Attribute) Int() (int64, bool) {
	var v int64
	m := message{rest: a.Raw}
	for m.next() {
		if m.num == 3 {
			v = m.int()
		}
	}
	return v, a.Kind == AttributeInt && m.err == nil
}

// Str returns the value of a string attribute.
func (a Attribute) Str() (string, bool) {
	var v []byte
	m := message{rest: a.Raw}
	for m.next() {
		if m.num == 4 {
			v = m.body()
		}
	}
	return string(v), a.Kind == AttributeString && m.err == nil
}

// Ints returns the value of an attribute that holds a list of integers, if it
// is not longer than any shape could be.
func (a Attribute) Ints() ([]int64, bool) {
	var v []int64
	m := message{rest: a.Raw}
	for m.next() {
		if m.num == 8 {
			m.ints(func(i int64) bool { v = append(v, i); return len(v) <= attributeInts })
		}
	}
	return v, a.Kind == AttributeInts && m.err == nil && len(v) <= attributeInts
}

// Tensor returns the value of a tensor attribute.
func (a Attribute) Tensor() (Initializer, bool) {
	var t Initializer
	p := &parser{data: a.Raw, limits: DefaultLimits(), left: DefaultLimits(), names: map[string]string{}}
	m := message{p: p, rest: a.Raw}
	for m.next() {
		if m.num == 5 {
			m.each(func(raw []byte) (err error) { t, err = p.tensor(raw, false); return err })
		}
	}
	return t, a.Kind == AttributeTensor && m.err == nil && t.Raw != nil
}

// attributeFields maps the fields that hold a value to the kind of it, for
// files of old writers, which leave the kind out.
var attributeFields = map[protowire.Number]AttributeKind{
	2: 1, 3: AttributeInt, 4: AttributeString, 5: AttributeTensor, 6: AttributeGraph,
	7: 6, 8: AttributeInts, 9: 8, 10: 9, 11: 10, 14: 13, 15: 14, 22: 11, 23: 12,
}

// attribute reads an attribute of a node whose graph lies depth graphs deep.
// It looks into every tensor and graph, also where the kind says that the
// field does not count. It returns the names that its graphs capture too.
func (p *parser) attribute(raw []byte, depth int) (Attribute, []string, error) {
	a := Attribute{Raw: clip(raw)}
	var captured []string
	var found AttributeKind
	subgraph := func(raw []byte) error {
		free, err := p.subgraph(raw, depth)
		captured, a.subgraphs = append(captured, free...), true
		return err
	}
	m := message{p: p, rest: raw}
	for m.next() {
		if kind := attributeFields[m.num]; kind != 0 {
			found = kind
		}
		switch m.num {
		case 1:
			a.Name = m.name()
		case 5:
			m.once(p.attributeTensor)
		case 10:
			m.each(p.attributeTensor)
		case 22:
			m.once(p.attributeSparse)
		case 23:
			m.each(p.attributeSparse)
		case 6:
			m.once(subgraph)
		case 11:
			m.each(subgraph)
		case 20:
			a.Kind = AttributeKind(m.int())
		}
	}
	if a.Kind == 0 {
		a.Kind = found
	}
	return a, captured, m.err
}

func (p *parser) subgraph(raw []byte, depth int) ([]string, error) {
	depth, err := p.deeper(depth, "graphs")
	if err != nil {
		return nil, err
	}
	g, free, err := p.graph(raw, depth)
	if err != nil {
		return nil, within(err, "subgraph "+quote(g.Name))
	}
	return free, nil
}

func (p *parser) attributeTensor(raw []byte) error {
	_, err := p.tensor(raw, false)
	return err
}

func (p *parser) attributeSparse(raw []byte) error {
	_, err := p.sparse(raw)
	return err
}
