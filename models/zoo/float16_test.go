package zoo

import (
	"math"
	"testing"
)

// widen returns the value of a half, by its definition.
func widen(h uint16) float64 {
	sign, exponent, digits := 1.0, int(h>>10&31), float64(h&0x3ff)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(digits, -24)
	case 31:
		if digits != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+digits, exponent-25)
}

func TestFloat16OfHalves(t *testing.T) {
	for bits := range 1 << 16 {
		h := uint16(bits)
		value := widen(h)
		got := float16(float32(value))
		if math.IsNaN(value) {
			if !math.IsNaN(widen(got)) {
				t.Errorf("%#04x: a NaN became %#04x", h, got)
			}
		} else if got != h {
			t.Errorf("%v: got %#04x, want %#04x", value, got, h)
		}
	}
}

// Between two halves the nearer one is taken, in the middle the even one.
func TestFloat16Rounds(t *testing.T) {
	for h := uint16(0); h < 0x7bff; h++ {
		low, high := widen(h), widen(h+1)
		middle := float32((low + high) / 2)
		even := h + h&1
		for _, x := range []struct {
			value float32
			want  uint16
		}{
			{math.Nextafter32(middle, 0), h},
			{middle, even},
			{math.Nextafter32(middle, math.MaxFloat32), h + 1},
		} {
			if got := float16(x.value); got != x.want {
				t.Fatalf("%v: got %#04x, want %#04x", x.value, got, x.want)
			}
			if got := float16(-x.value); got != x.want|0x8000 {
				t.Fatalf("%v: got %#04x, want %#04x", -x.value, got, x.want|0x8000)
			}
		}
	}
}

func TestFloat16Overflows(t *testing.T) {
	for value, want := range map[float32]uint16{
		65504:                             0x7bff,
		65519.99:                          0x7bff,
		65520:                             0x7c00,
		math.MaxFloat32:                   0x7c00,
		-65520:                            0xfc00,
		math.SmallestNonzeroFloat32:       0,
		float32(math.Inf(-1)):             0xfc00,
		float32(math.Copysign(1e-30, -1)): 0x8000,
	} {
		if got := float16(value); got != want {
			t.Errorf("%v: got %#04x, want %#04x", value, got, want)
		}
	}
}
