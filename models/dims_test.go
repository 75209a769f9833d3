package models

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testSpecs reads inputs such as "ids[N,S] mask[N,?] flags[2]". A name
// without brackets has no shape.
func testSpecs(s string) []TensorSpec {
	var specs []TensorSpec
	for _, field := range strings.Fields(s) {
		name, rest, ok := strings.Cut(strings.TrimSuffix(field, "]"), "[")
		ty := Type{Kind: KindTensor, Elem: Float32, HasShape: ok}
		for _, d := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
			dim := Dim{Value: -1, Name: strings.TrimPrefix(d, "?")}
			if d[0] >= '0' && d[0] <= '9' {
				dim = Dim{Value: int64(d[0] - '0')}
			}
			ty.Shape = append(ty.Shape, dim)
		}
		specs = append(specs, TensorSpec{name, ty})
	}
	return specs
}

func TestBatchDims(t *testing.T) {
	for inputs, want := range map[string]inputDims{
		"x[N,3,8,8]":              {[]int{0}, []int{-1}},
		"x[?,3,8,8]":              {[]int{0}, []int{-1}},
		"x[1,3]":                  {[]int{-1}, []int{-1}},
		"ids[N,S] mask[N,S]":      {[]int{0, 0}, []int{1, 1}},
		"ids[?,?] mask[?,?]":      {[]int{0, 0}, []int{1, 1}},
		"ids[N,S] mask[N,1,S,S]":  {[]int{0, 0}, []int{1, 2}},
		"ids[N,S] past[N,2,P,4]":  {[]int{0, 0}, []int{1, -1}},
		"ids[N,S] mask[N,N]":      {[]int{0, 0}, []int{1, -1}},
		"ids[1,S] mask[1,S]":      {[]int{-1, -1}, []int{1, 1}},
		"a[N,4] b[M,4]":           {[]int{-1, -1}, []int{0, -1}},
		"a[N,4] b[?,4]":           {[]int{-1, -1}, []int{0, -1}},
		"a[N,4] scale[2]":         {[]int{0, -1}, []int{-1, -1}},
		"a[N,4] scalar[] unknown": {[]int{0, -1, -1}, []int{-1, -1, -1}},
	} {
		if d := cmp.Diff(want, BatchDims(testSpecs(inputs))); d != "" {
			t.Errorf("%s: %s", inputs, d)
		}
	}
	sequence := TensorSpec{"s", Type{Kind: KindSequence, Item: &Type{Kind: KindTensor}}}
	if d := cmp.Diff(inputDims{[]int{-1}, []int{-1}}, BatchDims([]TensorSpec{sequence})); d != "" {
		t.Error(d)
	}
}
