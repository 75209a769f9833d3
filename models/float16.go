package models

import "math"

// EncodeFloat16 returns the bits of the IEEE 754 half that is nearest to f, the
// even one of two. What is too large becomes infinite.
func EncodeFloat16(f float32) uint16 {
	const (
		infinity      = 0x7c00
		smallestLarge = 0x477ff000 // 65520, halfway between the largest half and the next power of two
		smallestFull  = 0x38800000 // 2^-14, below which halves lose digits
		rebias        = (127 - 15) << 23
	)
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	bits &^= 1 << 31
	switch {
	case bits > 0x7f800000:
		return sign | infinity | 0x200
	case bits >= smallestLarge:
		return sign | infinity
	case bits >= smallestFull:
		bits -= rebias
		return sign | uint16((bits+0xfff+bits>>13&1)>>13)
	}
	// Adding 0.5 puts the last digit of a subnormal half at the last digit of
	// the sum, which the addition rounds as wanted.
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
	// In place of an exponent for the bias of float32, which subnormal halves have not.
	return float64(math.Float32frombits(sign|rest) * 0x1p112)
}
