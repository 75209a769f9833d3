package models

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModelOfFile(t *testing.T) {
	f := mustParse(t, testModel(testGraph("w x", "y", testNode("Relu", "x", "h"), testNode("Add", "h w", "y")).
		sub(5, testTensor("w", Float32, 0))))
	ty := TensorType(Float32, Dim{Value: -1, Name: "N"}, Dim{Value: 4})
	want := &Model{
		Hash:    f.Hash(),
		Inputs:  []TensorSpec{{"x", ty}},
		Outputs: []TensorSpec{{"y", ty}},
		Operators: []Operator{
			{Name: "Relu_h", Type: "Relu", Nodes: 1, LiveBytes: -1},
			{Name: "Add_y", Type: "Add", Nodes: 1, LiveBytes: -1},
		},
	}
	if d := cmp.Diff(want, f.Model(f.Hash())); d != "" {
		t.Error(d)
	}
}
