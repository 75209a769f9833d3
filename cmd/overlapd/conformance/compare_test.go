package conformance

import (
	"math"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/ort"
)

// TestSameSaysWhere names the first place that differs.
func TestSameSaysWhere(t *testing.T) {
	ints := func(data ...byte) value {
		return value{kind: ort.KindTensor, elem: ort.Int8, dims: []int64{int64(len(data))}, data: data}
	}
	halves := func(data ...byte) value {
		return value{kind: ort.KindTensor, elem: ort.Float16, dims: []int64{int64(len(data) / 2)}, data: data}
	}
	short := ints(1, 2)
	short.data = short.data[:1]
	for name, test := range map[string]struct {
		got, want []value
		says      string // "" if they are the same
	}{
		"equal":              {[]value{floats(1), ints(1)}, []value{floats(1), ints(1)}, ""},
		"number of outputs":  {[]value{floats(1)}, nil, "1 outputs, expected 0"},
		"the second":         {[]value{floats(1), floats(0, 2)}, []value{floats(1), floats(0, 3)}, "output 1: element 1 is 2, expected 3"},
		"integers":           {[]value{ints(1, 2, 3)}, []value{ints(1, 2, 4)}, "differs in byte 2"},
		"fewer bytes":        {[]value{short}, []value{ints(1, 2)}, "1 bytes, expected 2"},
		"a NaN":              {[]value{floats(float32(math.NaN()))}, []value{floats(1)}, "element 0 is NaN, expected 1"},
		"halves, near":       {[]value{halves(0x00, 0x3c)}, []value{halves(0x02, 0x3c)}, ""}, // two steps
		"halves, far":        {[]value{halves(0x00, 0x3c)}, []value{halves(0x20, 0x3c)}, "element 0 is 1, expected 1.03125"},
		"zeros of two signs": {[]value{floats(0)}, []value{floats(float32(math.Copysign(0, -1)))}, ""},
	} {
		err := sameAll(test.got, test.want, near)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, expected %q", name, err, test.says)
		}
	}
}

func TestTolerance(t *testing.T) {
	two := tolerance{absolute: 1, relative: 0.5}
	for _, test := range []struct {
		got, want float64
		allowed   bool
	}{
		{1, 0, true}, {1.01, 0, false}, {16, 10, true}, {16.01, 10, false}, {4, 10, true}, {3.99, 10, false},
		{-16, -10, true}, {-16.01, -10, false}, {math.NaN(), 1, false}, {1, math.NaN(), false},
		{math.MaxFloat64, math.Inf(1), false}, {math.Inf(1), math.MaxFloat64, false}, {math.Inf(1), math.Inf(1), true},
	} {
		if got := two.allows(test.got, test.want); got != test.allowed {
			t.Errorf("%v for %v: %t", test.got, test.want, got)
		}
	}
}
