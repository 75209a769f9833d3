package models

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// encode gives the nodes of a drawn graph their bytes.
func encode(g *graph) {
	words := func(names []string) string {
		var s []string
		for _, name := range names {
			s = append(s, "_"+name)
		}
		return strings.Join(s, " ")
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		raw := testNode("Op", words(n.Inputs), words(n.Outputs))
		if len(n.Captures) > 0 {
			body := pb(nil)
			for _, name := range n.Captures {
				body = body.sub(1, testNode("Use", "_"+name, ""))
			}
			raw = raw.sub(5, graphAttribute("body", body))
		}
		n.Raw = raw
	}
}

// span returns the model of nodes [start, end), with the inputs that they
// need and the intermediates that they leave.
func span(g *graph, v *Values, start, end int) *Parts {
	p := &Parts{IRVersion: 8}
	need := map[int32]bool{}
	for i := start; i < end; i++ {
		p.Nodes = append(p.Nodes, g.Nodes[i].Raw)
		for _, id := range slices.Concat(v.NodeIn[i], v.NodeCaptures[i]) {
			if id >= 0 && int(v.Producer[id]) < start && !need[id] {
				need[id] = true
				p.Inputs = append(p.Inputs, AppendValueInfo(nil, v.Names[id], Type{}))
			}
		}
	}
	for _, name := range aliveByDefinition(g, end) {
		if id, _ := v.ID(name); int(v.Producer[id]) >= start {
			p.Outputs = append(p.Outputs, AppendValueInfo(nil, name, Type{}))
		}
	}
	return p
}

// Whatever way a graph is cut, each span is a model of its own, and all it
// needs of other spans is alive at its start.
func TestEverySpanIsAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := genGraph(t)
		encode(g)
		v := g.Index()
		end := rapid.IntRange(0, len(g.Nodes)).Draw(t, "end")
		start := rapid.IntRange(0, end).Draw(t, "start")
		f, err := Parse(span(g, v, start, end).Append(nil))
		if err != nil {
			t.Fatalf("span [%d, %d): %v", start, end, err)
		}
		alive := append(aliveByDefinition(g, start), g.Inputs[0].Name)
		for _, in := range f.Graph.Inputs {
			if !slices.Contains(alive, in.Name) {
				t.Fatalf("span [%d, %d) needs %s, which is not alive", start, end, in.Name)
			}
		}
	})
}

// Nodes come behind what they use, whatever their order in the file, and stay where they
// are if they come behind it already.
func TestNodesAreSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := genGraph(t)
		encode(g)
		g.Nodes = rapid.Permutation(g.Nodes).Draw(t, "order")
		p := &Parts{IRVersion: 8, Inputs: [][]byte{testValue("x")}}
		for i := range g.Nodes {
			p.Nodes = append(p.Nodes, g.Nodes[i].Raw)
		}
		f, err := Parse(p.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if !inOrder(f.Graph.Nodes) {
			t.Fatal("the nodes are not in order")
		}
		raws := f.Parts().Nodes
		if inOrder(g.Nodes) && !slices.EqualFunc(raws, p.Nodes, bytes.Equal) {
			t.Fatal("nodes that were in order are in another")
		}
		slices.SortFunc(raws, bytes.Compare)
		slices.SortFunc(p.Nodes, bytes.Compare)
		if !slices.EqualFunc(raws, p.Nodes, bytes.Equal) {
			t.Fatal("the nodes are not those of the file")
		}
	})
}

func inOrder(nodes []Node) bool {
	defined := []string{"", "x"}
	for i := range nodes {
		for _, name := range slices.Concat(nodes[i].Inputs, nodes[i].Captures) {
			if !slices.Contains(defined, name) {
				return false
			}
		}
		defined = append(defined, nodes[i].Outputs...)
	}
	return true
}
