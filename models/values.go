package models

// Values numbers the values of a graph, so that what follows from the graph
// can be kept in arrays. Inputs come first, then the other initializers, then
// what nodes produce, in their order.
type Values struct {
	Names         []string
	Producer      []int32 // the node that produces it, -1 for an input or initializer
	LastUse       []int32 // the last node that uses it, the number of nodes if it is an output of the graph, -1 if nothing does
	Uses          []int32 // nodes that use it, and one more if it is an output of the graph
	IsInitializer []bool

	NodeIn       [][]int32 // of each node, -1 where an optional input is absent
	NodeOut      [][]int32 // of each node, -1 where an optional output is absent
	NodeCaptures [][]int32 // of each node, what its subgraphs use

	ids      map[string]int32
	produced int // first value that a node produces
}

// absent stands for an optional input or output that is not there.
const absent = -1

// Index numbers the values of g.
func (g *Graph) Index() *Values {
	n := len(g.Inputs) + len(g.Initializers) + len(g.Nodes)
	v := &Values{ids: make(map[string]int32, n)}
	for _, in := range g.Inputs {
		v.add(in.Name, declared)
	}
	for i := range g.Initializers {
		name := g.Initializers[i].Name
		if _, ok := v.ids[name]; !ok {
			v.add(name, declared)
		}
		v.IsInitializer[v.ids[name]] = true
	}
	v.produced = len(v.Names)
	for i := range g.Nodes {
		for _, name := range g.Nodes[i].Outputs {
			if name != "" {
				v.add(name, int32(i))
			}
		}
	}
	v.connect(g)
	return v
}

func (v *Values) add(name string, producer int32) {
	v.ids[name] = int32(len(v.Names))
	v.Names = append(v.Names, name)
	v.Producer = append(v.Producer, producer)
	v.LastUse = append(v.LastUse, -1)
	v.Uses = append(v.Uses, 0)
	v.IsInitializer = append(v.IsInitializer, false)
}

// connect fills in who uses which value.
func (v *Values) connect(g *Graph) {
	v.NodeIn = make([][]int32, len(g.Nodes))
	v.NodeOut = make([][]int32, len(g.Nodes))
	v.NodeCaptures = make([][]int32, len(g.Nodes))
	references := 0
	for i := range g.Nodes {
		n := &g.Nodes[i]
		references += len(n.Inputs) + len(n.Outputs) + len(n.Captures)
	}
	all := make([]int32, 0, references)
	numbers := func(names []string) []int32 {
		start := len(all)
		for _, name := range names {
			all = append(all, v.number(name))
		}
		return all[start:len(all):len(all)]
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		v.NodeIn[i] = numbers(n.Inputs)
		v.NodeOut[i] = numbers(n.Outputs)
		v.NodeCaptures[i] = numbers(n.Captures)
		v.use(v.NodeIn[i], int32(i))
		v.use(v.NodeCaptures[i], int32(i))
	}
	for _, out := range g.Outputs {
		v.use([]int32{v.number(out.Name)}, int32(len(g.Nodes)))
	}
}

func (v *Values) number(name string) int32 {
	if name == "" {
		return absent
	}
	return v.ids[name]
}

func (v *Values) use(ids []int32, by int32) {
	for _, id := range ids {
		if id != absent && v.LastUse[id] != by {
			v.LastUse[id] = by
			v.Uses[id]++
		}
	}
}

// ID returns the number of the value of the given name.
func (v *Values) ID(name string) (int, bool) {
	id, ok := v.ids[name]
	return int(id), ok
}

// Len returns the number of values.
func (v *Values) Len() int { return len(v.Names) }
