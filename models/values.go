package models

import (
	"maps"
	"slices"
)

// Values assigns a number to each value of a graph, so that data about values can be kept in
// arrays. Inputs come first, then the other initializers, then the outputs of nodes in the
// order of the nodes.
type Values struct {
	Names []string
	// Producer is the node that produces the value, or -1 for an input or initializer.
	Producer []int32
	// LastUse is the last node that uses the value. It is the number of nodes for an output of
	// the graph, and -1 if nothing uses the value.
	LastUse       []int32
	IsInitializer []bool

	// NodeIn and NodeOut hold the values of each node, with -1 for an absent optional one.
	NodeIn  [][]int32
	NodeOut [][]int32
	// NodeCaptures holds, for each node, the outer values that its subgraphs use.
	NodeCaptures [][]int32

	ids map[string]int32
}

// absent stands for an optional input or output that a node does not have.
const absent = -1

// Index assigns the numbers. The nodes of g must be in topological order.
func (g *graph) Index() *Values {
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
	v.IsInitializer = append(v.IsInitializer, false)
}

// connect records which nodes use which values.
func (v *Values) connect(g *graph) {
	v.NodeIn = make([][]int32, len(g.Nodes))
	v.NodeOut = make([][]int32, len(g.Nodes))
	v.NodeCaptures = make([][]int32, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		v.NodeIn[i] = v.numbers(n.Inputs)
		v.NodeOut[i] = v.numbers(n.Outputs)
		v.NodeCaptures[i] = v.numbers(n.Captures)
		for _, id := range slices.Concat(v.NodeIn[i], v.NodeCaptures[i]) {
			if id != absent {
				v.LastUse[id] = int32(i)
			}
		}
	}
	// This comes last, so that an output of the graph stays alive past its last node.
	for _, out := range g.Outputs {
		v.LastUse[v.ids[out.Name]] = int32(len(g.Nodes))
	}
}

// numbers returns the numbers of the named values, and absent for empty names.
func (v *Values) numbers(names []string) []int32 {
	ids := make([]int32, len(names))
	for i, name := range names {
		ids[i] = absent
		if name != "" {
			ids[i] = v.ids[name]
		}
	}
	return ids
}

// ID returns the number of the value with the given name.
func (v *Values) ID(name string) (int, bool) {
	id, ok := v.ids[name]
	return int(id), ok
}

// AliveBefore returns the number of intermediates at each cut, from the cut before the first
// node to the cut after the last. An intermediate at a cut is a value that a node before the
// cut produces and that a later node uses or the graph outputs.
func (v *Values) AliveBefore() []int {
	n := len(v.NodeOut)
	// alive first holds the change at each cut, and its running sum gives the count.
	alive := make([]int, n+2)
	for id, producer := range v.Producer {
		if last := v.LastUse[id]; producer >= 0 && last > producer {
			alive[producer+1]++
			alive[min(int(last), n)+1]--
		}
	}
	for k := 1; k <= n; k++ {
		alive[k] += alive[k-1]
	}
	return alive[:n+1]
}

// declared marks a value that no node produces: an input or initializer.
const declared = -1

// The states of a node while sortNodes runs. At first it has none.
const (
	// entered means that the producers of the node's inputs are being sorted.
	entered = 1 + iota
	sorted
)

// sortNodes sorts the nodes of g topologically and otherwise preserves their order: a node that
// is used too early moves to just before its first user. ONNX requires sorted nodes, but some
// converters append the nodes that they insert. Nodes of a subgraph cannot be reordered within
// the bytes of the enclosing node; checkOrder rejects a subgraph whose nodes are out of order.
//
// The search is an explicit stack, because recursion could be as deep as the number of nodes.
func sortNodes(g *graph) error {
	producer, err := definitions(g)
	if err != nil {
		return err
	}
	state, order := make([]uint8, len(g.Nodes)), make([]Node, 0, len(g.Nodes))
	// path holds the entered nodes and, above each, the nodes it depends on.
	var path []int
	for root := range g.Nodes {
		for path = append(path, root); len(path) > 0; {
			at, end := path[len(path)-1], len(path)
			// It was pushed more than once, by several nodes that depend on it.
			if state[at] == sorted {
				path = path[:end-1]
				continue
			}
			n := &g.Nodes[at]
			// Pushing in reverse makes the producer of the first input come first.
			for _, name := range slices.Backward(slices.Concat(n.Inputs, n.Captures)) {
				by, made := producer[name]
				switch {
				case !made || by == declared || state[by] == sorted:
				case by == at || state[by] == entered:
					return within(refuse(errGraph, "it uses %s, which %s computes from its outputs: the nodes form a cycle",
						quote(name), g.Nodes[by].place(by)), n.place(at))
				default:
					path = append(path, by)
				}
			}
			state[at] = entered
			if len(path) == end {
				state[at], order, path = sorted, append(order, *n), path[:end-1]
			}
		}
	}
	g.Nodes = order
	return nil
}

// checkOrder checks that every value of g is defined once and, if g defines it, before its
// first use. It returns, sorted, the names that g uses but does not define. These are an error
// unless inner is set, which means that g is nested in another graph.
func checkOrder(g *graph, inner bool) ([]string, error) {
	producer, err := definitions(g)
	if err != nil {
		return nil, err
	}
	free := map[string]bool{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for _, names := range [][]string{n.Inputs, n.Captures} {
			for _, name := range names {
				if name == "" {
					continue
				}
				at, ok := producer[name]
				switch {
				case !ok && !inner:
					return nil, within(refuse(errGraph, "no earlier node produces %s, which it or a subgraph of it uses", quote(name)), n.place(i))
				case !ok:
					free[name] = true
				case at >= i:
					return nil, within(refuse(errGraph, "it uses %s before %s produces it; sort the nodes",
						quote(name), g.Nodes[at].place(at)), n.place(i))
				}
			}
		}
	}
	for _, v := range g.Outputs {
		if _, ok := producer[v.Name]; !ok && !inner {
			return nil, refuse(errGraph, "no node produces the output %s", quote(v.Name))
		} else if !ok {
			free[v.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(free)), nil
}

// definitions maps each value that g defines to the node that produces it, or to declared for
// inputs and initializers. It returns an error if a value is defined twice.
func definitions(g *graph) (map[string]int, error) {
	producer := make(map[string]int, len(g.Inputs)+len(g.Initializers)+len(g.Nodes))
	for i, v := range g.Inputs {
		if err := define(producer, v.Name, declared); err != nil {
			return nil, within(err, place("input", v.Name, i))
		}
	}
	// An initializer may have the name of an input: it is then the input's default value.
	seen := make(map[string]bool, len(g.Initializers))
	for i := range g.Initializers {
		name := g.Initializers[i].Name
		if name == "" || seen[name] {
			return nil, within(refuse(errGraph, "its name is empty or already used"), place("initializer", name, i))
		}
		seen[name] = true
		producer[name] = declared
	}
	for i := range g.Nodes {
		for _, name := range g.Nodes[i].Outputs {
			if name == "" {
				continue
			}
			if err := define(producer, name, i); err != nil {
				return nil, within(err, g.Nodes[i].place(i))
			}
		}
	}
	return producer, nil
}

// define records that by produces name.
func define(producer map[string]int, name string, by int) error {
	if name == "" {
		return refuse(errGraph, "its name is empty")
	}
	if _, ok := producer[name]; ok {
		return refuse(errGraph, "value %s is defined twice", quote(name))
	}
	producer[name] = by
	return nil
}
