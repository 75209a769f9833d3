package models

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestFloat16OfHalves(t *testing.T) {
	for bits := range 1 << 16 {
		h := uint16(bits)
		value := DecodeFloat16(h)
		got := EncodeFloat16(float32(value))
		if math.IsNaN(value) {
			if !math.IsNaN(DecodeFloat16(got)) {
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
		low, high := DecodeFloat16(h), DecodeFloat16(h+1)
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
			if got := EncodeFloat16(x.value); got != x.want {
				t.Fatalf("%v: got %#04x, want %#04x", x.value, got, x.want)
			}
			if got := EncodeFloat16(-x.value); got != x.want|0x8000 {
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
		if got := EncodeFloat16(value); got != want {
			t.Errorf("%v: got %#04x, want %#04x", value, got, want)
		}
	}
}

func TestDecodeFloat16(t *testing.T) {
	for bits, want := range map[uint16]float64{
		0: 0, 0x3c00: 1, 0xc000: -2, 0x3555: 0.333251953125, 0x0001: math.Ldexp(1, -24), 0x7bff: 65504, 0xfc00: math.Inf(-1),
	} {
		if got := DecodeFloat16(bits); got != want {
			t.Errorf("%#04x is %v, want %v", bits, got, want)
		}
	}
	if !math.IsNaN(DecodeFloat16(0x7e00)) {
		t.Error("0x7e00 is a number")
	}
	rapid.Check(t, func(t *rapid.T) { // they are in order
		a := rapid.Uint16Range(0, 0x7bfe).Draw(t, "bits")
		if DecodeFloat16(a) >= DecodeFloat16(a+1) || DecodeFloat16(a) != -DecodeFloat16(a|0x8000) {
			t.Fatalf("%#04x is %v and the next %v", a, DecodeFloat16(a), DecodeFloat16(a+1))
		}
	})
}
