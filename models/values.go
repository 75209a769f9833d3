package models

import (
	"maps"
	"slices"
)

// Values numbers the values of a graph, so that what follows from the graph
// can be kept in arrays. Inputs come first, then the other initializers, then
// what nodes produce, in their order.
type Values struct {
	Names         []string
	Producer      []int32 // the node that produces it, -1 for an input or initializer
	LastUse       []int32 // the last node that uses it, the number of nodes if it is an output of the graph, -1 if nothing does
	IsInitializer []bool

	NodeIn       [][]int32 // by node, -1 where an optional input is absent
	NodeOut      [][]int32 // by node, -1 where an optional output is absent
	NodeCaptures [][]int32 // by node, what its subgraphs use

	ids map[string]int32
}

// absent stands for an optional input or output that is not there.
const absent = -1

// Index numbers the values of g.
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

// connect fills in who uses which value.
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
	for _, out := range g.Outputs {
		v.LastUse[v.ids[out.Name]] = int32(len(g.Nodes))
	}
}

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

// ID returns the number of the value of the given name.
func (v *Values) ID(name string) (int, bool) {
	id, ok := v.ids[name]
	return int(id), ok
}

// AliveBefore counts the intermediates at each cut, from the one before the first
// node to the one after the last: the values that a node before it produces and
// that a later one uses, or that are outputs of the graph.
func (v *Values) AliveBefore() []int {
	n := len(v.NodeOut)
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

// The states of a node while a graph is sorted.
const (
	unsorted = iota
	entered  // what it uses is being sorted
	sorted
)

// sortNodes brings the nodes of g into topological order: each one comes right behind
// what it uses, and otherwise they stay as they are. ONNX asks for that order, but some
// converters append the nodes that they insert. Those of a subgraph cannot be moved in
// the bytes of its node; ONNX Runtime refuses it if they are out of order.
func sortNodes(g *graph) error {
	producer, err := definitions(g)
	if err != nil {
		return err
	}
	state, order := make([]uint8, len(g.Nodes)), make([]Node, 0, len(g.Nodes))
	var path []int // entered nodes, and between them those that they wait for
	for root := range g.Nodes {
		for path = append(path, root); len(path) > 0; {
			at, end := path[len(path)-1], len(path)
			if state[at] == sorted { // another node waited for it, too
				path = path[:end-1]
				continue
			}
			n := &g.Nodes[at]
			for _, name := range slices.Backward(slices.Concat(n.Inputs, n.Captures)) {
				by, made := producer[name]
				switch {
				case !made || by == declared || state[by] == sorted:
				case by == at || state[by] == entered:
					return within(refuse(ErrGraph, "it uses %s, which %s makes of its outputs: the nodes form a cycle",
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

// checkOrder verifies that every value of g is defined once and, where g
// defines it, before it is used. It returns the names that g uses and does
// not define, sorted; there may be none where no graph is around g.
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
					return nil, within(refuse(ErrGraph, "nothing before it produces %s, which it or a subgraph of it uses", quote(name)), n.place(i))
				case !ok:
					free[name] = true
				case at >= i:
					return nil, within(refuse(ErrGraph, "it uses %s before %s produces it; sort the nodes",
						quote(name), g.Nodes[at].place(at)), n.place(i))
				}
			}
		}
	}
	for _, v := range g.Outputs {
		if _, ok := producer[v.Name]; !ok && !inner {
			return nil, refuse(ErrGraph, "nothing produces the output %s", quote(v.Name))
		} else if !ok {
			free[v.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(free)), nil
}

// definitions maps each value that g defines to the node that does, or to
// declared.
func definitions(g *graph) (map[string]int, error) {
	producer := make(map[string]int, len(g.Inputs)+len(g.Initializers)+len(g.Nodes))
	for i, v := range g.Inputs {
		if err := define(producer, v.Name, declared); err != nil {
			return nil, within(err, place("input", v.Name, i))
		}
	}
	// An initializer may stand for an input of the same name, once.
	seen := make(map[string]bool, len(g.Initializers))
	for i := range g.Initializers {
		name := g.Initializers[i].Name
		if name == "" || seen[name] {
			return nil, within(refuse(ErrGraph, "its name is empty or taken"), place("initializer", name, i))
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

func define(producer map[string]int, name string, by int) error {
	if name == "" {
		return refuse(ErrGraph, "its name is empty")
	}
	if _, ok := producer[name]; ok {
		return refuse(ErrGraph, "value %s is defined twice", quote(name))
	}
	producer[name] = by
	return nil
}
