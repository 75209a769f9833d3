package models

import (
	"testing"
)

func TestOrderIsVerified(t *testing.T) {
	sub := func(in, out string, nodes ...pb) pb { return graphAttribute("body", testGraph(in, out, nodes...)) }
	w := testTensor("w", Float32, 0)
	for _, test := range []struct {
		name  string
		graph pb
		parts []string
	}{
		{"undefined input", testGraph("x", "y", testNode("Add", "x q", "y")), []string{`"Add_y"`, `"Add"`, `"q"`}},
		{"cycle", testGraph("x", "y", testNode("Add", "x h", "y"), testNode("Relu", "x", "i"), testNode("Add", "y i", "h")),
			[]string{`"Add_h"`, `"y"`, `"Add_y"`, "cycle"}},
		{"own output", testGraph("x", "y", testNode("Relu", "y", "y")), []string{`"y"`, "cycle"}},
		{"undefined output", testGraph("x", "y"), []string{`output "y"`}},
		{"undefined capture", testGraph("x", "y", testNode("If", "x", "y", sub("", "h", testNode("Relu", "q", "h")))),
			[]string{`"If_y"`, `"q"`, "subgraph"}},
		{"cycle by a capture", testGraph("x", "y h", testNode("If", "x", "y", sub("", "z", testNode("Relu", "h", "z"))),
			testNode("Relu", "y", "h")), []string{`"If_y"`, `"Relu_h"`, "cycle"}},
		{"order in a subgraph", testGraph("x", "y", testNode("If", "x", "y",
			sub("", "b", testNode("Relu", "a", "b"), testNode("Relu", "x", "a")))), []string{`"If_y"`, `attribute "body"`, `"Relu_b"`, `"a"`, "sort"}},
		{"name of the outer graph before its own", testGraph("x a", "y", testNode("If", "x", "y",
			sub("", "b", testNode("Relu", "a", "b"), testNode("Relu", "x", "a")))), []string{`"a"`}},
		{"output twice", testGraph("x", "y", testNode("Relu", "x", "y"), testNode("Relu", "x", "y")), []string{`"y"`, "twice"}},
		{"output twice in one node", testGraph("x", "y", testNode("Split", "x", "y y")), []string{`"y"`, "twice"}},
		{"output over an input", testGraph("x", "x", testNode("Relu", "x", "x")), []string{`"x"`, "twice"}},
		{"output over an initializer", testGraph("x", "w", testNode("Relu", "x", "w")).sub(5, w), []string{`"w"`, "twice"}},
		{"input twice", testGraph("x x", ""), []string{`"x"`, "twice"}},
		{"initializer twice", testGraph("", "").sub(5, w).sub(5, w), []string{`"w"`}},
		{"sparse initializer of a taken name", testGraph("", "").sub(5, w).sub(15, pb(nil).sub(1, w).int(3, 4)), []string{`"w"`}},
		{"initializer without a name", testGraph("", "").sub(5, testTensor("", Float32, 0)), []string{"empty"}},
		{"input without a name", pb(nil).sub(11, nil), []string{"empty"}},
		{"listed output twice", testGraph("x", "x x"), []string{`"x"`, "twice"}},
		{"no operator type", pb(nil).sub(1, pb(nil).str(3, "n")), []string{`"n"`, "operator type"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantParseRefused(t, testModel(test.graph), errGraph, test.parts...)
		})
	}
}

func TestSubgraphMayShadow(t *testing.T) {
	f := mustParse(t, testModel(testGraph("x c", "y", testNode("If", "c", "y",
		graphAttribute("then_branch", testGraph("x", "z", testNode("Relu", "x", "z")))))))
	if c := f.Graph.Nodes[0].Captures; len(c) != 0 {
		t.Errorf("captures %v, which the subgraph defines itself", c)
	}
}
