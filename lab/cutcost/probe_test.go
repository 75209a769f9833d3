package cutcost

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// TestFill holds the values to what a model can take: numbers that stay
// finite, and integers that may be indices.
func TestFill(t *testing.T) {
	const n = 1000
	within := func(low, high float64) func(float64) bool {
		return func(v float64) bool { return low <= v && v <= high }
	}
	for _, c := range []struct {
		elem models.DataType
		read func(b []byte) float64
		good func(float64) bool
	}{
		{models.Float32, func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }, within(-10, 10)},
		{models.Float64, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }, within(-10, 10)},
		{models.Float16, halfOfOne, func(v float64) bool { return 1 <= v && v < 2 }},
		{models.Bool, func(b []byte) float64 { return float64(b[0]) }, within(0, 1)},
		{models.Int8, func(b []byte) float64 { return float64(int8(b[0])) }, within(0, integers-1)},
		{models.Int32, func(b []byte) float64 { return float64(int32(binary.LittleEndian.Uint32(b))) }, within(0, integers-1)},
		{models.Int64, func(b []byte) float64 { return float64(int64(binary.LittleEndian.Uint64(b))) }, within(0, integers-1)},
	} {
		data := make([]byte, n*c.elem.Bytes())
		fill(data, c.elem, rand.New(rand.NewPCG(7, 0)))
		seen := map[float64]bool{}
		for b := range slices.Chunk(data, c.elem.Bytes()) {
			v := c.read(b)
			seen[v] = true
			if !c.good(v) {
				t.Fatalf("%v: %v is out of bounds", c.elem, v)
			}
		}
		if len(seen) < 2 {
			t.Errorf("%v: all %d values are the same", c.elem, n)
		}
		again := make([]byte, len(data))
		fill(again, c.elem, rand.New(rand.NewPCG(7, 0)))
		if !slices.Equal(data, again) {
			t.Errorf("%v: the same seed gave other values", c.elem)
		}
	}
}

// halfOfOne reads a half-precision number whose exponent is that of 1.
func halfOfOne(b []byte) float64 {
	bits := binary.LittleEndian.Uint16(b)
	if bits>>10 != 15 {
		return math.NaN()
	}
	return 1 + float64(bits&1023)/1024
}

// TestMakeInputRefuses sees what cannot be made up, before any memory is
// asked for.
func TestMakeInputRefuses(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for want, c := range map[string]struct {
		elem  models.DataType
		shape []int64
	}{
		"no values can be made up": {models.String, []int64{2}},
		"no values":                {models.Float32, []int64{2, 0}},
		"over 1073741824 elements": {models.Float32, []int64{1 << 20, 1 << 20, 1 << 40}},
	} {
		p := &probe{}
		err := p.makeInput(models.TensorSpec{Name: "x", Type: models.Type{Elem: c.elem}}, c.shape, random)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%v of %v: got %v, want %q", c.elem, c.shape, err, want)
		}
	}
}
