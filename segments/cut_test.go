package segments

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// chain is n Relus, one after the other, of which the outputs at the given
// positions are added up at the end.
func chain(n int, skips ...int) *graph {
	g := newGraph()
	last := g.input("x", models.Float32, open, 4)
	var kept []string
	for i := range n {
		last = g.node("Relu", list(last), list(fmt.Sprint("n", i)))
		if slices.Contains(skips, i) {
			kept = append(kept, last)
		}
	}
	for _, name := range kept {
		last = g.node("Add", list(last, name), list(last+name))
	}
	g.output(last, models.Float32)
	return g
}

func cutGraph(t testing.TB, g *graph, target int) *cutting {
	t.Helper()
	c, err := cut(g.parse(t), target, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func names(c *cutting, ids []int32) []string {
	var s []string
	for _, id := range ids {
		s = append(s, c.values.Names[id])
	}
	return s
}

func TestCutAtEveryNode(t *testing.T) {
	c := cutGraph(t, chain(3, 0), 0)
	if len(c.pieces) != 4 {
		t.Fatalf("%d pieces, expected 4", len(c.pieces))
	}
	for i, want := range []struct{ in, out []string }{
		{list("x"), list("n0")}, {list("n0"), list("n1")}, {list("n1"), list("n2")}, {list("n2", "n0"), list("n2n0")},
	} {
		p := &c.pieces[i]
		if in, out := names(c, p.inputs), names(c, p.outputs); !slices.Equal(in, want.in) || !slices.Equal(out, want.out) {
			t.Errorf("piece %d takes %q and makes %q, expected %q and %q", i, in, out, want.in, want.out)
		}
	}
	if id, _ := c.values.ID("n0"); c.lastAt[id] != 3 {
		t.Errorf("n0 is used last by piece %d, expected 3", c.lastAt[id])
	}
	if id, _ := c.values.ID("n2n0"); c.lastAt[id] != 4 {
		t.Errorf("the output is used last by piece %d, expected 4", c.lastAt[id])
	}
}

func TestCutPassesValuesOver(t *testing.T) {
	c := cutGraph(t, chain(6, 0), 2)
	first, second := &c.pieces[0], &c.pieces[1]
	if out := names(c, first.outputs); len(out) != 2 || out[0] != "n0" {
		t.Errorf("the first piece makes %q", out)
	}
	if in := names(c, second.inputs); len(in) != 2 || !slices.Contains(in, "n0") {
		t.Errorf("the second piece takes %q", in)
	}
	if len(second.reuse.inputs) != 0 {
		t.Error("a piece of several nodes shares memory")
	}
}

// TestBorders cuts graphs of any size into any number of pieces.
func TestBorders(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 26).Draw(rt, "nodes")
		skips := rapid.SliceOfDistinct(rapid.IntRange(0, n-1), rapid.ID[int]).Draw(rt, "skips")
		target := rapid.IntRange(0, 60).Draw(rt, "target")
		c := cutGraph(t, chain(n, skips...), target)
		nodes := n + len(skips)
		want := target
		if target == 0 || target > nodes {
			want = nodes
		}
		if len(c.pieces) != want {
			rt.Fatalf("%d pieces of %d nodes, expected %d", len(c.pieces), nodes, want)
		}
		at := 0
		for i, p := range c.pieces {
			if p.first != at || p.last <= p.first {
				rt.Fatalf("piece %d is [%d, %d) and begins at %d", i, p.first, p.last, at)
			}
			at = p.last
		}
		if at != nodes {
			rt.Fatalf("the pieces end at node %d of %d", at, nodes)
		}
	})
}

// TestBordersAvoidWideCuts draws a border to where only one value is alive.
func TestBordersAvoidWideCuts(t *testing.T) {
	g := newGraph()
	last := g.input("x", models.Float32, open, 4)
	last = g.node("Abs", list(last), list("0"))
	last = g.node("Abs", list(last), list("1"))
	last = g.node("Relu", list(last), list("2"))
	g.node("Tanh", list(last), list("3"))
	last = g.node("Add", list("2", "3"), list("4"))
	for _, name := range list("5", "6", "7", "8") {
		last = g.node("Abs", list(last), list(name))
	}
	g.output(last, models.Float32)
	c := cutGraph(t, g, 2)
	// Half-way lies before node 4, where two values are alive.
	if border := c.pieces[0].last; border != 3 {
		t.Errorf("the border lies before node %d, expected 3", border)
	}
}
