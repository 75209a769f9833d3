package models

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFill(t *testing.T) {
	for inputs, want := range map[string][][]int64{
		"x[N,3,8]":             {{4, 3, 8}},
		"ids[N,S] types[N,S]":  {{4, 9}, {4, 9}},
		"ids[N,S] mask[N,S,S]": {{4, 9}, {4, 9, 9}},
		"ids[N,S] mask[N,N]":   {{4, 9}, {4, 4}},
		"x[N,S,T,?]":           {{4, 9, 1, 1}},
		"x[2] y[]":             {{2}, {}},
		"x[N,0]":               {{4, 0}},
	} {
		if d := cmp.Diff(want, Fill(testSpecs(inputs), 4, 9)); d != "" {
			t.Errorf("%s: %s", inputs, d)
		}
	}
	sequence := TensorSpec{"s", Type{Kind: KindSequence, Item: &Type{Kind: KindTensor}}}
	if d := cmp.Diff([][]int64{{}}, Fill([]TensorSpec{sequence}, 4, 9)); d != "" {
		t.Error(d)
	}
}

func TestHasSeqLen(t *testing.T) {
	for inputs, want := range map[string]bool{"x[N,3,8]": false, "ids[N,S] types[N,S]": true, "x[1,S]": true, "x[2]": false} {
		if got := HasSeqLen(testSpecs(inputs)); got != want {
			t.Errorf("%s: %v", inputs, got)
		}
	}
}
