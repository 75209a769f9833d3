package models

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAttributes(t *testing.T) {
	f := mustParse(t, testModel(testGraph("x", "y", testNode("Op", "x", "y",
		pb(nil).str(1, "i").int(3, -7).int(20, 2),
		pb(nil).str(1, "s").str(4, "NHWC").int(20, 3),
		pb(nil).str(1, "v").sub(8, pb{1, 2}).int(8, 3).int(20, 7),
		pb(nil).str(1, "t").sub(5, testTensor("w", Int64, 1).sub(9, raw64(9))).int(20, 4),
		pb(nil).str(1, "old").int(8, 4).int(8, 5)))))
	n := &f.Graph.Nodes[0]
	get := func(name string) attribute {
		a, ok := n.Attribute(name)
		if !ok {
			t.Fatalf("no attribute %s", name)
		}
		return a
	}
	if v, ok := get("i").Int(); !ok || v != -7 {
		t.Errorf("Int: %d %v", v, ok)
	}
	if v, ok := get("s").Str(); !ok || v != "NHWC" {
		t.Errorf("Str: %q %v", v, ok)
	}
	for name, want := range map[string][]int64{"v": {1, 2, 3}, "old": {4, 5}} {
		if v, ok := get(name).Ints(); !ok || !cmp.Equal(v, want) {
			t.Errorf("Ints of %s: %v %v", name, v, ok)
		}
	}
	tensor, ok := get("t").Tensor()
	if v, small := tensor.Int64s(); !ok || !small || !cmp.Equal(v, []int64{9}) {
		t.Errorf("Tensor: %v %v", v, ok)
	}
	if _, ok := n.Attribute("none"); ok {
		t.Error("found an attribute that is not there")
	}
	if _, ok := get("s").Int(); ok {
		t.Error("a string is read as a number")
	}
	if _, ok := get("i").Tensor(); ok {
		t.Error("a number is read as a tensor")
	}
}
