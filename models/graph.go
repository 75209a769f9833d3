package models

// Opset is a set of operators that a model imports.
type Opset struct {
	Domain  string // "" is ONNX itself
	Version int64
	Raw     []byte // OperatorSetIdProto
}

// Graph is the main graph of a file. Its nodes are in topological order and
// each value is defined once.
type Graph struct {
	Name         string
	Nodes        []Node
	Initializers []Initializer
	Inputs       []ValueInfo // before IR version 4 initializers are listed here too
	Outputs      []ValueInfo
	Values       []ValueInfo // what the file declares of other values
}

// FeedInputs returns the inputs that a query must bring: those that are not
// initializers.
func (g *Graph) FeedInputs() []ValueInfo {
	constant := make(map[string]bool, len(g.Initializers))
	for i := range g.Initializers {
		constant[g.Initializers[i].Name] = true
	}
	var feeds []ValueInfo
	for _, v := range g.Inputs {
		if !constant[v.Name] {
			feeds = append(feeds, v)
		}
	}
	return feeds
}

// graph reads a graph that lies depth graphs deep. It also returns the names
// that the graph takes from the graphs around it.
func (p *parser) graph(raw []byte, depth int) (Graph, []string, error) {
	var g Graph
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
		return Graph{}, nil, m.err
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
