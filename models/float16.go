package models

import "math"

// EncodeFloat16 returns the bits of the IEEE 754 half that is nearest to f, rounding ties to
// even. Values that are too large become infinite.
func EncodeFloat16(f float32) uint16 {
	const (
		infinity = 0x7c00
		// smallestLarge is 65520, halfway between the largest half and the next power of two.
		smallestLarge = 0x477ff000
		// smallestFull is 2^-14. Below it halves are subnormal and lose precision.
		smallestFull = 0x38800000
		rebias       = (127 - 15) << 23
	)
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	bits &^= 1 << 31
	switch {
	case bits > 0x7f800000:
		// Setting the quiet bit keeps a NaN a NaN even if its upper payload bits are zero.
		return sign | infinity | 0x200
	case bits >= smallestLarge:
		return sign | infinity
	case bits >= smallestFull:
		bits -= rebias
		return sign | uint16((bits+0xfff+bits>>13&1)>>13)
	}
	// Adding 0.5 aligns the last bit of a subnormal half with the last bit of the sum, so that
	// the floating-point addition does the rounding.
	return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-math.Float32bits(0.5))
}

// DecodeFloat16 returns the value of an IEEE 754 half: a sign, 5 bits of
// exponent and 10 of fraction.
func DecodeFloat16(bits uint16) float64 {
	const infinity = 0x7c00
	sign, rest := uint32(bits&0x8000)<<16, uint32(bits&0x7fff)<<13
	if bits&infinity == infinity {
		return float64(math.Float32frombits(sign | rest | 0x7f800000))
	}
	// Scaling by 2^112 adjusts the exponent bias from half to float32. Unlike an addition to the
	// exponent bits, it is also right for subnormal halves.
	return float64(math.Float32frombits(sign|rest) * 0x1p112)
}
