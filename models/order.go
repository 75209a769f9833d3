package models

import (
	"slices"
)

// declared marks a value that no node produces: an input or initializer.
const declared = -1

// checkOrder verifies that every value of g is defined once and, where g
// defines it, before it is used. It returns the names that g uses and does
// not define, sorted.
func checkOrder(g *Graph) ([]string, error) {
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
				if !ok {
					free[name] = true
				} else if at >= i {
					return nil, within(refuse(ErrGraph, "it uses %s before %s produces it; sort the nodes",
						quote(name), g.Nodes[at].place(at)), n.place(i))
				}
			}
		}
	}
	for _, v := range g.Outputs {
		if _, ok := producer[v.Name]; !ok {
			free[v.Name] = true
		}
	}
	names := make([]string, 0, len(free))
	for name := range free {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// definitions maps each value that g defines to the node that does, or to
// declared.
func definitions(g *Graph) (map[string]int, error) {
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

// undefined says who uses name, which nothing defines.
func undefined(g *Graph, name string) error {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch {
		case slices.Contains(n.Inputs, name):
			return within(refuse(ErrGraph, "nothing before it produces its input %s", quote(name)), n.place(i))
		case slices.Contains(n.Captures, name):
			return within(refuse(ErrGraph, "nothing before it produces %s, which its subgraph uses", quote(name)), n.place(i))
		}
	}
	return refuse(ErrGraph, "nothing produces the output %s", quote(name))
}
