package models

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// opset is a set of operators that a model imports.
type opset struct {
	Domain  string // "" is ONNX itself
	Version int64
	Raw     []byte // OperatorSetIdProto
}

// graph is the main graph of a file. Its nodes are in topological order and
// each value is defined once.
type graph struct {
	Name         string
	Nodes        []Node
	Initializers []Initializer
	Inputs       []valueInfo // before IR version 4 initializers are listed here too
	Outputs      []valueInfo
	Values       []valueInfo // what the file declares of other values
}

// FeedInputs returns the inputs that a query must bring: those that are not
// initializers.
func (g *graph) FeedInputs() []valueInfo {
	constant := make(map[string]bool, len(g.Initializers))
	for i := range g.Initializers {
		constant[g.Initializers[i].Name] = true
	}
	var feeds []valueInfo
	for _, v := range g.Inputs {
		if !constant[v.Name] {
			feeds = append(feeds, v)
		}
	}
	return feeds
}

// graph reads a graph that lies depth graphs deep. It also returns the names
// that the graph takes from the graphs around it.
func (p *parser) graph(raw []byte, depth int) (graph, []string, error) {
	var g graph
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			m.each(func(raw []byte) error { return p.graphNode(&g.Nodes, raw, depth) })
		case 2:
			g.Name = m.name()
		case 5:
			m.each(func(raw []byte) error { return p.initializer(&g, raw, depth) })
		case 11:
			m.each(func(raw []byte) error { return p.valueInfos(&g.Inputs, "input", raw) })
		case 12:
			m.each(func(raw []byte) error { return p.valueInfos(&g.Outputs, "output", raw) })
		case 13:
			m.each(func(raw []byte) error { return p.valueInfos(&g.Values, "value", raw) })
		case 15:
			m.each(func(raw []byte) error { return p.sparseInitializer(&g, raw) })
		}
	}
	if m.err != nil {
		return graph{}, nil, m.err
	}
	free, err := checkOrder(&g)
	return g, free, err
}

func (p *parser) graphNode(nodes *[]Node, raw []byte, depth int) error {
	if err := p.spend(&p.left.Nodes, p.limits.Nodes, 1, "nodes"); err != nil {
		return err
	}
	n, err := p.node(raw, depth)
	if err != nil {
		return within(err, n.place(len(*nodes)))
	}
	*nodes = append(*nodes, n)
	return nil
}

// Node is one node of a graph.
type Node struct {
	Raw        []byte // NodeProto
	Name       string // may be empty, and need not be unique
	OpType     string
	Domain     string   // "" is ONNX itself
	Overload   string   // the overload of the function it calls
	Inputs     []string // "" for an optional input that is absent
	Outputs    []string // "" for an optional output that is absent
	Captures   []string // names that its subgraphs take from outside, at any depth, sorted
	Attributes []attribute
	Subgraphs  bool
}

// Attribute returns the attribute of the given name.
func (n *Node) Attribute(name string) (attribute, bool) {
	for _, a := range n.Attributes {
		if a.Name == name {
			return a, true
		}
	}
	return attribute{}, false
}

// place names the node, the i-th of its graph, in a message.
func (n *Node) place(i int) string {
	s := place("node", n.Name, i)
	if n.OpType != "" {
		s += " (" + quote(n.OpType) + ")"
	}
	return s
}

// node reads a node of a graph that lies depth graphs deep. What it returns
// with an error is good for a message only.
func (p *parser) node(raw []byte, depth int) (Node, error) {
	n := Node{Raw: clip(raw)}
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			p.reference(&m, &n.Inputs)
		case 2:
			p.reference(&m, &n.Outputs)
		case 3:
			n.Name = m.name()
		case 4:
			n.OpType = m.name()
		case 5:
			m.each(func(raw []byte) error { return p.nodeAttribute(&n, raw, depth) })
		case 7:
			n.Domain = m.name()
		case 8:
			n.Overload = m.name()
		}
	}
	if m.err == nil && n.OpType == "" {
		m.err = refuse(ErrGraph, "it has no operator type")
	}
	slices.Sort(n.Captures)
	n.Captures = slices.Clip(slices.Compact(n.Captures))
	p.calls.add(functionKey{n.Domain, n.OpType, n.Overload}.canonical())
	return n, m.err
}

func (p *parser) reference(m *message, to *[]string) {
	name := m.name()
	if m.err == nil {
		m.err = p.spend(&p.left.References, p.limits.References, 1, "node inputs and outputs")
	}
	*to = append(*to, name)
}

func (p *parser) nodeAttribute(n *Node, raw []byte, depth int) error {
	if err := p.spend(&p.left.Attributes, p.limits.Attributes, 1, "attributes"); err != nil {
		return err
	}
	a, free, err := p.attribute(raw, depth)
	if err != nil {
		return within(err, place("attribute", a.Name, len(n.Attributes)))
	}
	n.Attributes = append(n.Attributes, a)
	n.Captures = append(n.Captures, free...)
	n.Subgraphs = n.Subgraphs || a.subgraphs
	return nil
}

// attributeKind is the type of an attribute, numbered as in ONNX
// (AttributeProto.AttributeType).
type attributeKind int32

// The kinds of attribute that overlapd reads the value of.
const (
	AttributeInt    attributeKind = 2
	AttributeString attributeKind = 3
	AttributeTensor attributeKind = 4
	AttributeGraph  attributeKind = 5
	AttributeInts   attributeKind = 7
)

// attributeInts bounds what Ints decodes.
const attributeInts = 1 << 16

// attribute is one attribute of a node. Its value is decoded when it is asked
// for.
type attribute struct {
	Name string
	Kind attributeKind
	Raw  []byte // AttributeProto

	subgraphs bool
}

// Int returns the value of an integer attribute.
func (a attribute) Int() (int64, bool) {
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
func (a attribute) Str() (string, bool) {
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
func (a attribute) Ints() ([]int64, bool) {
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
func (a attribute) Tensor() (Initializer, bool) {
	var t Initializer
	p := &parser{data: a.Raw, limits: defaultLimits(), left: defaultLimits(), names: map[string]string{}}
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
var attributeFields = map[protowire.Number]attributeKind{
	2: 1, 3: AttributeInt, 4: AttributeString, 5: AttributeTensor, 6: AttributeGraph,
	7: 6, 8: AttributeInts, 9: 8, 10: 9, 11: 10, 14: 13, 15: 14, 22: 11, 23: 12,
}

// attribute reads an attribute of a node whose graph lies depth graphs deep.
// It looks into every tensor and graph, also where the field does not count for an
// attribute of this kind. It returns the names that its graphs capture too.
func (p *parser) attribute(raw []byte, depth int) (attribute, []string, error) {
	a := attribute{Raw: clip(raw)}
	var captured []string
	var found attributeKind
	subgraph := func(raw []byte) error {
		free, err := p.subgraph(raw, depth)
		captured, a.subgraphs = append(captured, free...), true
		return err
	}
	tensor := func(raw []byte) error { _, err := p.tensor(raw, false); return err }
	sparse := func(raw []byte) error { _, err := p.sparse(raw); return err }
	m := message{p: p, rest: raw}
	for m.next() {
		if kind := attributeFields[m.num]; kind != 0 {
			found = kind
		}
		switch m.num {
		case 1:
			a.Name = m.name()
		case 5:
			m.once(tensor)
		case 10:
			m.each(tensor)
		case 22:
			m.once(sparse)
		case 23:
			m.each(sparse)
		case 6:
			m.once(subgraph)
		case 11:
			m.each(subgraph)
		case 20:
			a.Kind = attributeKind(m.int())
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
