package segments

import (
	"testing"

	"github.com/overlapd/overlapd/models"
)

// planOf plans a graph of float values of one size, of which it names some
// that are smaller.
func planOf(t *testing.T, g *graph, small ...string) (*cutting, *layout) {
	t.Helper()
	c := cutGraph(t, g, 0)
	shapes := make([]shape, len(c.values.Names))
	for id := range shapes {
		if c.values.Producer[id] >= 0 {
			shapes[id] = shape{dims: []int64{1, 4}, bytes: 16, known: true}
		}
	}
	for _, name := range small {
		id, _ := c.values.ID(name)
		shapes[id] = shape{dims: []int64{1, 1}, bytes: 4, known: true}
	}
	return c, newLayout(c, shapes, nil, layoutOptions{inPlace: true})
}

func TestSharing(t *testing.T) {
	for name, test := range map[string]struct {
		build func(g *graph)
		small []string
		share bool // whether b lies where a lies
	}{
		"a dies": {func(g *graph) {
			g.node("Relu", list("a"), list("b"))
			g.output("b", models.Float32)
		}, nil, true},
		"a is needed later": {func(g *graph) {
			g.node("Relu", list("a"), list("b"))
			g.node("Add", list("a", "b"), list("c"))
			g.output("c", models.Float32)
		}, nil, false},
		"a is an output": {func(g *graph) {
			g.node("Relu", list("a"), list("b"))
			g.output("b", models.Float32)
			g.output("a", models.Float32)
		}, nil, false},
		"a view of a that lives on": {func(g *graph) {
			g.node("Identity", list("a"), list("b"))
			g.output("b", models.Float32)
			g.output("a", models.Float32)
		}, nil, true},
		"a view of a is needed later": {func(g *graph) {
			g.node("Identity", list("a"), list("v"))
			g.node("Relu", list("a"), list("b"))
			g.node("Add", list("b", "v"), list("c"))
			g.output("c", models.Float32)
		}, nil, false},
		"both inputs are a": {func(g *graph) {
			g.node("Sub", list("a", "a"), list("b"))
			g.output("b", models.Float32)
		}, nil, false},
		"the other input is a view of a": {func(g *graph) {
			g.node("Identity", list("a"), list("v"))
			g.node("Sub", list("a", "v"), list("b"))
			g.output("b", models.Float32)
		}, nil, false},
		"a is the second input": {func(g *graph) {
			g.node("Sub", list("x", "a"), list("b"))
			g.output("b", models.Float32)
		}, nil, true},
		"a is smaller": {func(g *graph) {
			g.node("Add", list("x", "a"), list("b"))
			g.output("b", models.Float32)
		}, list("a"), false},
		"not element by element": {func(g *graph) {
			g.node("Softmax", list("a"), list("b"))
			g.output("b", models.Float32)
		}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			g.input("x", models.Float32, open, 4)
			g.node("Tanh", list("x"), list("a"))
			test.build(g)
			c, l := planOf(t, g, test.small...)
			a, _ := c.values.ID("a")
			b, _ := c.values.ID("b")
			if got := l.buffer[a] == l.buffer[b]; got != test.share {
				t.Errorf("shares memory: %t, expected %t", got, test.share)
			}
		})
	}
}

func TestResidualOfFusedConvolution(t *testing.T) {
	for _, domain := range list("com.microsoft.nchwc", "com.microsoft", "") {
		op := map[string]string{"com.microsoft.nchwc": "Conv", "com.microsoft": "FusedConv", "": "Conv"}[domain]
		n := models.Node{OpType: op, Domain: domain}
		if got, want := len(reuseOf(&n).inputs) == 1 && reuseOf(&n).inputs[0] == sumInput, domain != ""; got != want {
			t.Errorf("%s of %q adds to its input %d: %t, expected %t", op, domain, sumInput, got, want)
		}
	}
	if len(reuseOf(&models.Node{OpType: "Relu", Domain: "somebody"}).inputs) != 0 {
		t.Error("an operator of an unknown domain shares memory")
	}
}
