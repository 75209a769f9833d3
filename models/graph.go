package models

import "slices"

// graph is the main graph of a file. Its nodes are in topological order, even if those of the
// file are not, and each value is defined exactly once.
type graph struct {
	Name         string
	Nodes        []Node
	Initializers []Initializer
	// Inputs also lists initializers in files before IR version 4. See FeedInputs.
	Inputs  []valueInfo
	Outputs []valueInfo
}

// FeedInputs returns the inputs that a query must supply: those that are not initializers.
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

// graph reads a graph that is nested depth graphs deep; 0 is the main graph. It also returns
// the names that the graph takes from enclosing graphs.
func (p *parser) graph(raw []byte, depth int) (graph, []string, error) {
	var g graph
	m := message{p: p, rest: raw}
	// The declarations of intermediates are checked but not kept.
	var others []valueInfo
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
			m.each(func(raw []byte) error { return p.valueInfos(&others, "value", raw) })
		case 15:
			m.each(func(raw []byte) error { return p.sparseInitializer(&g, raw) })
		}
	}
	if m.err != nil {
		return graph{}, nil, m.err
	}
	if depth == 0 {
		if err := sortNodes(&g); err != nil {
			return g, nil, err
		}
	}
	free, err := checkOrder(&g, depth > 0)
	return g, free, err
}

// graphNode reads a node and appends it to nodes.
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
	// Raw is the NodeProto.
	Raw []byte
	// Name may be empty and need not be unique.
	Name   string
	OpType string
	// Domain is "" for ONNX itself.
	Domain string
	// Overload selects among functions of the same name.
	Overload string
	// Inputs and Outputs name values. An absent optional one is "".
	Inputs  []string
	Outputs []string
	// Captures lists, sorted, the names that the node's subgraphs take from outside, at any
	// depth.
	Captures  []string
	Subgraphs bool
}

// Convolves reports whether the node is a standard ONNX convolution.
func (n *Node) Convolves() bool {
	return (n.Domain == "" || n.Domain == "ai.onnx") && (n.OpType == "Conv" || n.OpType == "ConvTranspose")
}

// Custom reports whether the operator is not one of ONNX Runtime's own: it belongs to a
// library of custom operators, or is a function of the model. Nothing is known of it.
func (n *Node) Custom() bool { return !slices.Contains(domains, n.Domain) }

// place names the node in a message. i is its position in the graph.
func (n *Node) place(i int) string {
	s := place("node", n.Name, i)
	if n.OpType != "" {
		s += " (" + quote(n.OpType) + ")"
	}
	return s
}

// node reads a node of a graph that is nested depth graphs deep. A node returned with an error
// is only good for naming it in a message.
func (p *parser) node(raw []byte, depth int) (Node, error) {
	n := Node{Raw: clip(raw)}
	attributes := 0
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
			m.each(func(raw []byte) error { return p.nodeAttribute(&n, raw, depth, attributes) })
			attributes++
		case 7:
			n.Domain = m.name()
		case 8:
			n.Overload = m.name()
		}
	}
	if m.err == nil && n.OpType == "" {
		m.err = refuse(errGraph, "it has no operator type")
	}
	slices.Sort(n.Captures)
	n.Captures = slices.Clip(slices.Compact(n.Captures))
	p.calls[functionKey{n.Domain, n.OpType, n.Overload}.canonical()]++
	return n, m.err
}

// reference reads the name of a node's input or output and appends it to to.
func (p *parser) reference(m *message, to *[]string) {
	name := m.name()
	if m.err == nil {
		m.err = p.spend(&p.left.References, p.limits.References, 1, "node inputs and outputs")
	}
	*to = append(*to, name)
}

// nodeAttribute reads an attribute of a node whose graph is nested depth graphs deep. It
// checks every tensor and subgraph, even in fields that do not belong to the attribute's
// type, because another reader may use them.
func (p *parser) nodeAttribute(n *Node, raw []byte, depth, i int) error {
	if err := p.spend(&p.left.Attributes, p.limits.Attributes, 1, "attributes"); err != nil {
		return err
	}
	subgraph := func(raw []byte) error {
		free, err := p.subgraph(raw, depth)
		n.Captures, n.Subgraphs = append(n.Captures, free...), true
		return err
	}
	tensor := func(raw []byte) error { _, err := p.tensor(raw, false); return err }
	sparse := func(raw []byte) error { _, err := p.sparse(raw); return err }
	var name string
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			name = m.name()
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
		}
	}
	return within(m.err, place("attribute", name, i))
}

// subgraph reads a graph in an attribute and returns the names it takes from outside.
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
