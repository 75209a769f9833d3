package models

import (
	"fmt"
	"testing"
)

func TestFunctionRecursionIsRefused(t *testing.T) {
	inSubgraph := testNode("If", "x", "y", graphAttribute("then_branch", testGraph("", "z", call("f", "x", "z"))))
	for name, functions := range map[string][]pb{
		"direct":        {testFunction("f", call("f", "x", "y"))},
		"in a circle":   {testFunction("f", call("g", "x", "y")), testFunction("g", call("h", "x", "y")), testFunction("h", call("f", "x", "y"))},
		"in a subgraph": {testFunction("f", inSubgraph)},
	} {
		t.Run(name, func(t *testing.T) {
			model := testModel(testGraph("x", "y", testNode("Relu", "x", "y")))
			for _, f := range functions {
				model = model.sub(25, f)
			}
			wantParseRefused(t, model, errGraph, "function", "calls itself")
		})
	}
}

// The two spellings of ONNX's own domain name one function.
func TestFunctionRecursionOverDomainSpelling(t *testing.T) {
	f := pb(nil).str(1, "Relu").str(10, "ai.onnx").str(4, "x").str(5, "y").sub(7, testNode("Relu", "x", "y"))
	wantParseRefused(t, testModel(nil).sub(25, f), errGraph, "calls itself")
}

func TestFunctionsThatDoubleAreRefused(t *testing.T) {
	model := testModel(testGraph("x", "y", call("f40", "x", "y"))).sub(25, testFunction("f0", testNode("Relu", "x", "y")))
	for i := 1; i <= 40; i++ {
		callee := fmt.Sprintf("f%d", i-1)
		model = model.sub(25, testFunction(fmt.Sprintf("f%d", i), call(callee, "x", "h"), call(callee, "h", "y")))
	}
	wantParseRefused(t, model, ErrLimit, "expanded")
}

func TestFunctionCallDepth(t *testing.T) {
	chain := func(n int) pb {
		model := testModel(nil).sub(25, testFunction("f1", testNode("Relu", "x", "y")))
		for i := 2; i <= n; i++ {
			model = model.sub(25, testFunction(fmt.Sprintf("f%d", i), call(fmt.Sprintf("f%d", i-1), "x", "y")))
		}
		return model
	}
	mustParse(t, chain(maxCallDepth))
	wantParseRefused(t, chain(maxCallDepth+1), ErrLimit, "deep")
}

func TestFunctionBodyIsVerified(t *testing.T) {
	for name, f := range map[string]pb{
		"undefined": testFunction("f", testNode("Relu", "q", "y")),
		"twice":     testFunction("f", testNode("Relu", "x", "y"), testNode("Relu", "x", "y")),
		"output":    testFunction("f", testNode("Relu", "x", "z")),
	} {
		t.Run(name, func(t *testing.T) {
			wantParseRefused(t, testModel(nil).sub(25, f), errGraph, `function "f"`)
		})
	}
	f := testFunction("f", testNode("Relu", "x", "y"))
	wantParseRefused(t, testModel(nil).sub(25, f).sub(25, f), errGraph, "defined twice")
	mustParse(t, testModel(nil).sub(25, f).sub(25, f.str(13, "overload")))
}
