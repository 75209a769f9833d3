package segments

import (
	"testing"

	"github.com/overlapd/overlapd/models"
)

// parse reads the graph back, as the engine sees it.
func (g *graph) parse(t testing.TB) *models.File {
	t.Helper()
	f, err := models.Parse(g.encode())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTrace(t *testing.T) {
	g := newGraph()
	g.input("x", models.Float32, open, 8)
	g.input("data", models.Int64, 2)
	g.int64s("two", 2, 4)
	g.int64s("first", 0)
	g.node("Relu", list("x"), list("same shape"))
	g.node("Shape", list("x"), list("content of shape"))
	g.node("Gather", list("content of shape", "first"), list("content of batch"))
	g.node("Concat", list("content of batch", "two"), list("content"), intAttribute("axis", 0))
	g.node("Reshape", list("x", "content"), list("reshaped"))
	g.node("Reshape", list("x", "data"), list("reshaped by data"))
	g.node("Tanh", list("reshaped by data"), list("after it"))
	g.node("NonZero", list("x"), list("places"))
	g.node("Shape", list("places"), list("number of places"))
	g.node("RandomUniformLike", list("x"), list("random"))
	g.node("SequenceConstruct", list("same shape"), list("sequence"))
	g.node("Add", list("two", "two"), list("four"))
	for _, name := range list("after it", "number of places", "random", "reshaped", "sequence", "four") {
		g.output(name, models.Float32)
	}
	f := g.parse(t)
	v := f.Graph.Index()
	known := trace(f, v)
	for name, want := range map[string]knowledge{
		"x":                {shape: true},
		"two":              {shape: true, value: true},
		"same shape":       {}, // a sequence holds on to it
		"content of shape": {shape: true, value: true},
		"content of batch": {shape: true, value: true},
		"content":          {shape: true, value: true},
		"reshaped":         {shape: true},
		"reshaped by data": {},
		"after it":         {},
		"places":           {},
		"number of places": {},
		"random":           {shape: true},
		"sequence":         {},
		"four":             {shape: true, value: true},
	} {
		if id, ok := v.ID(name); !ok || known[id] != want {
			t.Errorf("%s: %+v, expected %+v", name, known[id], want)
		}
	}
}

// TestTables holds the tables against each other.
func TestTables(t *testing.T) {
	for op := range shapedOps {
		if pureOps[op] {
			t.Errorf("the shape of %s cannot both depend on values and not", op)
		}
	}
	for _, ops := range []map[string]bool{viewOps, unaryOps, binaryOps} {
		for op := range ops {
			if _, shaped := shapedOps[op]; !pureOps[op] && !shaped {
				t.Errorf("%s may share memory, but nothing is known of its shape", op)
			}
		}
	}
	for _, op := range list("NonZero", "Compress", "Unique", "NonMaxSuppression", "If", "Loop", "Scan", "SequenceAt", "StringSplit", "Multinomial") {
		if _, shaped := shapedOps[op]; pureOps[op] || shaped {
			t.Errorf("the shape of %s follows from data", op)
		}
	}
}

// TestPinningOperators names all operators that by ONNX Runtime's sources copy tables from
// pinned memory of the host.
func TestPinningOperators(t *testing.T) {
	for _, op := range list("Concat", "Split", "ScatterND", "MatMul", "FusedMatMul", "TransposeMatMul", "NonMaxSuppression", "RNN", "GRU", "LSTM") {
		g := newGraph()
		g.input("x", models.Float32, open, 8)
		g.output(g.node(op, list("x"), list("y")), models.Float32)
		c, err := cut(g.parse(t), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !c.pieces[0].pins {
			t.Errorf("pinned memory of %s is not given back", op)
		}
	}
	for dims, pins := range map[int]bool{1: true, 2: false, 3: true} {
		g := newGraph()
		g.input("x", models.Float32, open, 2, 2)
		shape := []int64{2, 2, 2}[:dims]
		g.weights("w", models.Float32, shape, make([]byte, 4*elements(shape)))
		g.output(g.node("MatMul", list("x", "w"), list("y")), models.Float32)
		c, err := cut(g.parse(t), 0, nil)
		if err != nil || c.pieces[0].pins != pins {
			t.Errorf("MatMul by weights of %d dimensions pins: %t, %v", dims, !pins, err)
		}
	}
}
