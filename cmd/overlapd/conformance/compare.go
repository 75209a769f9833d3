package conformance

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/overlapd/overlapd/ort"
)

// tolerance is how far floating-point numbers may lie apart.
type tolerance struct{ absolute, relative float64 }

var (
	exact = tolerance{}
	near  = tolerance{absolute: 2e-4, relative: 1e-3}
	// nearHalf is for types of two bytes, whose steps are that large.
	nearHalf = tolerance{absolute: 2e-3, relative: 1e-2}
)

// sameAll returns an error that says where got differs from want.
func sameAll(got, want []value, t tolerance) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d outputs, expected %d", len(got), len(want))
	}
	for i := range got {
		if err := same(got[i], want[i], t); err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
	}
	return nil
}

func same(got, want value, t tolerance) error {
	switch {
	case got.kind != want.kind:
		return fmt.Errorf("a %s, expected a %s", got.kind, want.kind)
	case got.kind == ort.KindSequence:
		return sameAll(got.items, want.items, t)
	case got.elem != want.elem || !slices.Equal(got.dims, want.dims):
		return fmt.Errorf("%s%v, expected %s%v", got.elem, got.dims, want.elem, want.dims)
	case got.elem == ort.String:
		return sameStrings(got.strings, want.strings)
	case bytes.Equal(got.data, want.data):
		return nil
	case len(got.data) != len(want.data):
		return fmt.Errorf("%d bytes, expected %d", len(got.data), len(want.data))
	}
	return sameFloats(got, want, t)
}

func sameStrings(got, want [][]byte) error {
	if !slices.EqualFunc(got, want, bytes.Equal) {
		return fmt.Errorf("strings %q, expected %q", got, want)
	}
	return nil
}

func sameFloats(got, want value, t tolerance) error {
	if _, ok := got.float(0); !ok || t == exact {
		return fmt.Errorf("%s%v differs in byte %d", got.elem, got.dims, firstDifference(got.data, want.data))
	}
	if t == near && elementBytes(got.elem) == 2 {
		t = nearHalf
	}
	for i := range int(got.elements()) {
		g, _ := got.float(i)
		w, _ := want.float(i)
		if !t.allows(g, w) {
			return fmt.Errorf("element %d is %v, expected %v", i, g, w)
		}
	}
	return nil
}

func (t tolerance) allows(got, want float64) bool {
	if got == want || math.IsNaN(got) && math.IsNaN(want) {
		return true
	}
	if math.IsInf(got, 0) || math.IsInf(want, 0) {
		return false
	}
	return math.Abs(got-want) <= t.absolute+t.relative*math.Abs(want)
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
