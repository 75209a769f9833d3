package models

import "slices"

// Node is one node of a graph.
type Node struct {
	Raw        []byte // NodeProto
	Name       string // may be empty, and need not be unique
	OpType     string
	Domain     string   // "" is ONNX itself
	Overload   string   // of the function it calls
	Inputs     []string // "" for an optional input that is absent
	Outputs    []string // "" for an optional output that is absent
	Captures   []string // names that its subgraphs take from outside, at any depth, sorted
	Attributes []Attribute
	Subgraphs  bool
}

// Attribute returns the attribute of the given name.
func (n *Node) Attribute(name string) (Attribute, bool) {
	for _, a := range n.Attributes {
		if a.Name == name {
			return a, true
		}
	}
	return Attribute{}, false
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
