package zoo

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/overlapd/overlapd/models"
)

func TestFill(t *testing.T) {
	const n = 200_000
	for _, want := range []struct{ mean, deviation float64 }{{0, 1}, {1, 0.1}, {0, math.Sqrt(2.0 / 4608)}} {
		f := around(want.mean, want.deviation)
		s := newStream(3, "weights")
		var sum, squares float64
		for range n {
			v := float64(f.draw(s))
			if limit := math.Sqrt(3) * want.deviation * 1.000001; math.Abs(v-want.mean) > limit {
				t.Fatalf("%v is more than %v from %v", v, limit, want.mean)
			}
			sum += v
			squares += (v - want.mean) * (v - want.mean)
		}
		// Five standard errors.
		if mean := sum / n; math.Abs(mean-want.mean) > 5*want.deviation/math.Sqrt(n) {
			t.Errorf("mean %v, want %v", mean, want.mean)
		}
		if deviation := math.Sqrt(squares / n); math.Abs(deviation/want.deviation-1) > 0.005 {
			t.Errorf("standard deviation %v, want %v", deviation, want.deviation)
		}
	}
}

func TestStreamsDiffer(t *testing.T) {
	first := func(seed uint64, name string) [4]float32 {
		s := newStream(seed, name)
		return [4]float32{s.next(), s.next(), s.next(), s.next()}
	}
	seen := make(map[[4]float32]string)
	for seed := range uint64(100) {
		for _, name := range []string{"", "a", "b", "ab", "ba"} {
			numbers := first(seed, name)
			if other, ok := seen[numbers]; ok {
				t.Errorf("seed %d, %q: same numbers as %q of another stream", seed, name, other)
			}
			seen[numbers] = name
		}
	}
}

func TestStreamRange(t *testing.T) {
	s := newStream(1, "")
	low, high := float32(1), float32(-1)
	for range 1_000_000 {
		v := s.next()
		low, high = min(low, v), max(high, v)
	}
	if low < -1 || high >= 1 || low > -0.9999 || high < 0.9999 {
		t.Errorf("numbers from %v to %v, want [-1, 1)", low, high)
	}
}

func TestTensorEncode(t *testing.T) {
	floats := tensor{elem: models.Float32, dims: []int64{2, 3}, fill: fill{center: 1.5}}
	halves := tensor{elem: models.Float16, dims: []int64{6}, fill: fill{center: 1.5}}
	indices := tensor{elem: models.Int64, dims: []int64{3}, fill: fill{integers: []int64{-1, 0, 1 << 40}}}
	for _, x := range []struct {
		tensor
		bytes int64
	}{{floats, 24}, {halves, 12}, {indices, 24}} {
		if got := x.tensor.bytes(); got != x.bytes {
			t.Fatalf("%s: %d bytes, want %d", x.elem, got, x.bytes)
		}
	}
	b := make([]byte, 24)
	floats.encode(b, 0, newStream(0, ""))
	if got := math.Float32frombits(binary.LittleEndian.Uint32(b[20:])); got != 1.5 {
		t.Errorf("the last float is %v", got)
	}
	halves.encode(b[:12], 0, newStream(0, ""))
	if got := binary.LittleEndian.Uint16(b[10:]); got != 0x3e00 {
		t.Errorf("the last half is %#x", got)
	}
	indices.encode(b[:16], 1, newStream(0, ""))
	if a, z := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:])); a != 0 || z != 1<<40 {
		t.Errorf("the last integers are %d and %d", a, z)
	}
}

// Weights in half precision must stay clear of what a half cannot hold.
func TestHalvesAreFinite(t *testing.T) {
	for _, name := range Names() {
		g := lookup(t, name).graph()
		for _, x := range g.tensors {
			if x.elem != models.Float16 {
				continue
			}
			f := x.fill
			for _, v := range []float32{f.center - f.spread, f.center + f.spread} {
				if models.EncodeFloat16(v)&0x7c00 == 0x7c00 {
					t.Errorf("%s: %s holds %v", name, x.name, v)
				}
			}
		}
	}
}
