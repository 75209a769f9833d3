package models

import (
	"errors"
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

func TestSize(t *testing.T) {
	for _, test := range []struct {
		inputs        string
		shapes        [][]int64
		batch, seqLen int
	}{
		{"x[N,3]", [][]int64{{5, 3}}, 5, 0},
		{"x[2,3]", [][]int64{{2, 3}}, 1, 0},
		{"ids[N,S] mask[N,S]", [][]int64{{4, 64}, {4, 64}}, 4, 64},
		{"ids[?,?] mask[?,?]", [][]int64{{4, 64}, {4, 64}}, 4, 64},
		{"x[N,3] flag", [][]int64{{4, 3}, {7, 7, 7}}, 4, 0},
		{"x[N,S]", [][]int64{{1, 0}}, 1, 0},
		{"", nil, 1, 0},
	} {
		m := &Model{Inputs: testSpecs(test.inputs)}
		batch, seqLen, err := m.Size(test.shapes)
		if err != nil || batch != test.batch || seqLen != test.seqLen {
			t.Errorf("%s %v: %d %d %v", test.inputs, test.shapes, batch, seqLen, err)
		}
	}
}

func TestSizeRefuses(t *testing.T) {
	for _, test := range []struct {
		inputs string
		shapes [][]int64
		parts  []string
	}{
		{"x[N,3]", nil, []string{"expected 1 inputs", "got 0"}},
		{"x[N,3]", [][]int64{{4}}, []string{`"x"`, "float32[N,3]", "[4]"}},
		{"x[N,3]", [][]int64{{4, 2}}, []string{`"x"`, "float32[N,3]", "[4 2]"}},
		{"x[N,3]", [][]int64{{0, 3}}, []string{"batch size is 0"}},
		{"x[N,3]", [][]int64{{-1, 3}}, []string{`"x"`, "-1"}},
		{"x[N,S]", [][]int64{{1, 1 << 40}}, []string{`"x"`, "1099511627776"}},
		{"a[N,3] b[N,3]", [][]int64{{4, 3}, {5, 3}}, []string{`"b"`, `"N"`, "4", "[5 3]", `"a"`}},
		{"a[?,3] b[?,3]", [][]int64{{4, 3}, {5, 3}}, []string{`"b"`, "batch size 4", "[5 3]"}},
		{"a[N,S] b[N,S]", [][]int64{{4, 8}, {4, 9}}, []string{`"b"`, `"S"`, "8", "[4 9]"}},
		{"x[]", [][]int64{{1}}, []string{`"x"`}},
	} {
		m := &Model{Inputs: testSpecs(test.inputs)}
		_, _, err := m.Size(test.shapes)
		if !errors.Is(err, ErrShape) {
			t.Errorf("%s %v: got %v", test.inputs, test.shapes, err)
			continue
		}
		for _, part := range test.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s %v: %q does not hold %q", test.inputs, test.shapes, err, part)
			}
		}
	}
}
