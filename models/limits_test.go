package models

import (
	"runtime"
	"testing"
)

// nested returns a graph with depth graphs inside each other.
func nested(depth int) pb {
	g := testGraph("", "")
	for range depth {
		g = testGraph("", "", testNode("If", "", "", graphAttribute("then_branch", g)))
	}
	return g
}

// Each model exceeds one limit by one and is read when the limit is raised.
func TestLimits(t *testing.T) {
	optional := func(depth int) pb {
		ty := TensorType(Float32)
		for range depth {
			item := ty
			ty = Type{Kind: KindOptional, Item: &item}
		}
		return AppendValueInfo(nil, "x", ty)
	}
	relu := testNode("Relu", "x", "y")
	sparse := pb(nil).sub(1, testTensor("s", Float32, 0)).int(3, 1<<10)
	for _, test := range []struct {
		name  string
		model pb
		limit func(l *limits, more int)
	}{
		{"nodes", testModel(testGraph("x", "z", relu, testNode("Relu", "y", "z"))),
			func(l *limits, more int) { l.Nodes = 1 + more }},
		{"nodes of subgraphs", testModel(nested(1)).sub(25, testFunction("f", relu)),
			func(l *limits, more int) { l.Nodes = 1 + more }},
		{"nodes of functions once expanded", testModel(testGraph("x", "z", call("f", "x", "y"), call("f", "y", "z"))).
			sub(25, testFunction("f", testNode("Relu", "x", "h"), testNode("Relu", "h", "y"))),
			func(l *limits, more int) { l.Nodes = 4 - 1 + more }},
		{"depth of graphs", testModel(nested(4)),
			func(l *limits, more int) { l.Depth = 3 + more }},
		{"depth of types", testModel(pb(nil).sub(11, optional(4))),
			func(l *limits, more int) { l.Depth = 3 + more }},
		{"attributes", testModel(testGraph("x", "y", testNode("Relu", "x", "y", pb(nil).str(1, "a"), pb(nil).str(1, "b")))),
			func(l *limits, more int) { l.Attributes = 1 + more }},
		{"references", testModel(testGraph("x", "y", testNode("Relu", "x _", "y"))),
			func(l *limits, more int) { l.References = 2 + more }},
		{"tensors", testModel(pb(nil).sub(5, testTensor("a", Float32, 0)).sub(5, testTensor("b", Float32, 0))),
			func(l *limits, more int) { l.Tensors = 1 + more }},
		{"tensors of attributes", testModel(testGraph("", "y", testNode("Constant", "", "y",
			pb(nil).sub(10, testTensor("", Float32, 0)).sub(10, testTensor("", Float32, 0))))),
			func(l *limits, more int) { l.Tensors = 1 + more }},
		{"value infos", testModel(testGraph("x y", "x")),
			func(l *limits, more int) { l.ValueInfos = 2 + more }},
		{"function parameters", testModel(nil).sub(25, testFunction("f", relu)),
			func(l *limits, more int) { l.ValueInfos = 1 + more }},
		{"functions", testModel(nil).sub(25, testFunction("f", relu)).sub(25, testFunction("g", relu)),
			func(l *limits, more int) { l.Functions = 1 + more }},
		{"operator sets", testModel(nil).sub(8, nil),
			func(l *limits, more int) { l.Opsets = 1 + more }},
		{"rank of a tensor", testModel(pb(nil).sub(5, testTensor("a", Float32, 0, 1, 1))),
			func(l *limits, more int) { l.Rank = 2 + more }},
		{"rank of a type", testModel(testGraph("x", "")),
			func(l *limits, more int) { l.Rank = 1 + more }},
		{"dimensions", testModel(testGraph("x", "").sub(5, testTensor("a", Float32, 0, 1, 1))),
			func(l *limits, more int) { l.Dims = 4 + more }},
		{"length of a name", testModel(testGraph("abcde", "")),
			func(l *limits, more int) { l.NameBytes = 4 + more }},
		{"bytes of names", testModel(testGraph("abcde abcde2", "abcde")),
			func(l *limits, more int) { l.StringBytes = len("g"+"abcde"+"abcde2"+"N") - 1 + more }},
		{"dense bytes", testModel(pb(nil).sub(15, sparse)),
			func(l *limits, more int) { l.DenseBytes = 1<<12 - 1 + int64(more) }},
		{"file bytes", testModel(nil),
			func(l *limits, more int) { l.FileBytes = int64(len(testModel(nil))) - 1 + int64(more) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := defaultLimits()
			test.limit(&l, 0)
			_, err := parse(test.model, l, nil)
			wantRefused(t, err, ErrLimit)
			test.limit(&l, 1)
			if _, err := parse(test.model, l, nil); err != nil {
				t.Errorf("one more is refused too: %v", err)
			}
		})
	}
}

func TestDefaultDepth(t *testing.T) {
	mustParse(t, testModel(nested(16)))
	wantParseRefused(t, testModel(nested(17)), ErrLimit, "16 deep")
}

func TestMillionNodes(t *testing.T) {
	n := testNode("Relu", "x", "_")
	graph := testGraph("x", "")
	for range 1_000_000 {
		graph = graph.sub(1, n)
	}
	model := testModel(graph)
	if n := allocated(func() { wantParseRefused(t, model, ErrLimit, "200000 nodes") }); n > 256<<20 {
		t.Errorf("refusing it allocated %d bytes", n)
	}
}

// allocated returns the bytes that run allocates.
func allocated(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
