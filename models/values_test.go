package models

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestIndex(t *testing.T) {
	body := graphAttribute("then_branch", testGraph("", "z", testNode("Add", "a w", "z")))
	f := mustParse(t, testModel(testGraph("w x c", "y a",
		testNode("Split", "x _ x", "a _ b"),
		testNode("If", "c", "i", body),
		testNode("Add", "b i", "y")).
		sub(5, testTensor("w", Float32, 0)).sub(5, testTensor("v", Float32, 0))))
	v := f.Graph.Index()
	if d := cmp.Diff([]string{"w", "x", "c", "v", "a", "b", "i", "y"}, v.Names); d != "" {
		t.Fatal(d)
	}
	for name, got := range map[string][2]any{
		"producer":     {v.Producer, []int32{-1, -1, -1, -1, 0, 0, 1, 2}},
		"last use":     {v.LastUse, []int32{1, 0, 1, -1, 3, 2, 2, 3}},
		"initializers": {v.IsInitializer, []bool{true, false, false, true, false, false, false, false}},
		"node inputs":  {v.NodeIn, [][]int32{{1, -1, 1}, {2}, {5, 6}}},
		"node outputs": {v.NodeOut, [][]int32{{4, -1, 5}, {6}, {7}}},
		"captures":     {v.NodeCaptures, [][]int32{{}, {4, 0}, {}}},
	} {
		if d := cmp.Diff(got[1], got[0]); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if id, ok := v.ID("b"); !ok || id != 5 {
		t.Errorf("ID of b: %d %v", id, ok)
	}
	if _, ok := v.ID("z"); ok {
		t.Error("a value of a subgraph has a number")
	}
	if d := cmp.Diff([]int{0, 2, 3, 2}, v.AliveBefore()); d != "" {
		t.Error(d)
	}
}

// genGraph draws nodes that each use some earlier values.
func genGraph(t *rapid.T) *graph {
	g := &graph{Inputs: []valueInfo{{Name: "x"}}}
	names := []string{"x", ""}
	for i := range rapid.IntRange(0, 20).Draw(t, "nodes") {
		n := Node{
			Inputs:   rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(t, "inputs"),
			Captures: rapid.SliceOfN(rapid.SampledFrom(names[min(2, len(names)-1):]), 0, min(2, len(names)-2)).Draw(t, "captures"),
		}
		for j := range rapid.IntRange(0, 2).Draw(t, "outputs") {
			n.Outputs = append(n.Outputs, fmt.Sprintf("v%d.%d", i, j))
		}
		names = append(names, n.Outputs...)
		g.Nodes = append(g.Nodes, n)
	}
	for _, name := range names[2:] {
		if rapid.IntRange(0, 9).Draw(t, "output") == 0 {
			g.Outputs = append(g.Outputs, valueInfo{Name: name})
		}
	}
	return g
}

// aliveByDefinition says what is alive before node k in the words of the
// definition.
func aliveByDefinition(g *graph, k int) []string {
	alive := []string{}
	for _, n := range g.Nodes[:k] {
		for _, name := range n.Outputs {
			needed := slices.ContainsFunc(g.Outputs, func(v valueInfo) bool { return v.Name == name })
			for _, later := range g.Nodes[k:] {
				needed = needed || slices.Contains(later.Inputs, name) || slices.Contains(later.Captures, name)
			}
			if needed {
				alive = append(alive, name)
			}
		}
	}
	return alive
}

func TestLivenessIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := genGraph(t)
		want := []int{}
		for k := range len(g.Nodes) + 1 {
			want = append(want, len(aliveByDefinition(g, k)))
		}
		if d := cmp.Diff(want, g.Index().AliveBefore()); d != "" {
			t.Fatal(d)
		}
	})
}
