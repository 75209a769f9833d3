package segments

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// emptyOptional is the attribute with the type that an empty Optional could hold.
func emptyOptional() []byte {
	const typeProto, kindTypeProto = 14, 13
	item := tensorType(models.Float32, open, 4)
	const nameAndTag = 4 // the empty name, and the tag and length of the type
	raw := models.AppendValueInfo(nil, "", item)[nameAndTag:]
	return models.AppendInt(models.AppendField(models.AppendString(nil, 1, "type"), typeProto, raw), 20, kindTypeProto)
}

func TestEmptyOptional(t *testing.T) {
	g := xGraph()
	g.node("Optional", nil, list("o"), emptyOptional())
	g.node("Relu", list("x"), list("y"))
	g.node("OptionalHasElement", list("o"), list("has"))
	g.node("Not", list("has"), list("has not"))
	g.output("has not", models.Bool)
	g.output("y", models.Float32)
	expectWhole(t, g.write(t), rows(t, 1))
}

// TestOptionalOfIf has an optional that is empty for some inputs.
func TestOptionalOfIf(t *testing.T) {
	g := xGraph()
	g.floats("zero", nil, 0)
	g.node("ReduceSum", list("x"), list("total"), intAttribute("keepdims", 0))
	g.node("Greater", list("total", "zero"), list("positive"))
	optional := func(b *graph, name string) *graph {
		item := tensorType(models.Float32, open, 4)
		b.parts.Outputs = append(b.parts.Outputs, models.AppendValueInfo(nil, name, models.Type{Kind: models.KindOptional, Item: &item}))
		return b
	}
	yes, no := newGraph(), newGraph()
	yes.node("Optional", list("x"), list("full"))
	no.node("Optional", nil, list("empty"), emptyOptional())
	g.node("If", list("positive"), list("o"),
		graphAttribute("then_branch", optional(yes, "full")), graphAttribute("else_branch", optional(no, "empty")))
	g.node("OptionalHasElement", list("o"), list("has"))
	g.node("Relu", list("x"), list("y"))
	g.output("has", models.Bool)
	g.output("y", models.Float32)
	expectWhole(t, g.write(t), rows(t, 1), rows(t, 3))
}

func TestJoin(t *testing.T) {
	for _, test := range []struct {
		borders, want []int
		joined        []nodes
	}{
		{[]int{0, 1, 2, 3}, []int{0, 1, 2, 3}, nil},
		{[]int{0, 1, 2, 3}, []int{0, 2, 3}, []nodes{{0, 1}}},
		{[]int{0, 1, 2, 3}, []int{0, 3}, []nodes{{0, 1}, {1, 2}}},
		{[]int{0, 2, 4}, []int{0, 2, 4}, []nodes{{0, 1}, {2, 3}}},
		{[]int{0, 2, 4}, []int{0, 4}, []nodes{{1, 2}}},
	} {
		if got := join(slices.Clone(test.borders), test.joined); !slices.Equal(got, test.want) {
			t.Errorf("borders %v with %v joined: %v, expected %v", test.borders, test.joined, got, test.want)
		}
	}
}
