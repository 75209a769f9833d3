//go:build goexperiment.simd && amd64

package predictor

import (
	"math"
	"simd/archsimd"
)

// fastest returns the fastest kernel that this build has for this machine.
func fastest() kernel {
	switch cpu := archsimd.X86; {
	case cpu.AVX512():
		return avx512
	case cpu.AVX2() && cpu.FMA():
		return avx2
	}
	return plain
}

// avx512 is the kernel for 512-bit vectors. A panel is two vectors wide.
func avx512(l *dense, s *lanes, x, y matrix, rows int) {
	for r := 0; r < rows; r += blockRows {
		in, out := blockOf(x, r, rows, l.inputs), blockOf(y, r, rows, y.stride)
		begins := s.all[:l.inputs]
		if l.gather {
			begins = s.gatherBlock(&in)
		}
		for p := range l.panels {
			panel512(&in, begins, l.weights[p*l.inputs*panel:], l.bias[p*panel:], &out, p*panel)
		}
	}
	archsimd.ClearAVXUpperBits()
}

// avx2 is the kernel for 256-bit vectors. A panel is four vectors wide and is computed in halves,
// because AVX2 has too few registers for all of it.
func avx2(l *dense, s *lanes, x, y matrix, rows int) {
	for r := 0; r < rows; r += blockRows {
		in, out := blockOf(x, r, rows, l.inputs), blockOf(y, r, rows, y.stride)
		begins := s.all[:l.inputs]
		if l.gather {
			begins = s.gatherBlock(&in)
		}
		for o := 0; o < l.panels*panel; o += panel / 2 {
			half256(&in, begins, l.weights[o/panel*l.inputs*panel+o%panel:], l.bias[o:], &out, o)
		}
	}
	archsimd.ClearAVXUpperBits()
}

// blockOf returns the rows of a block. An incomplete block repeats the last row.
func blockOf(m matrix, first, rows, size int) (block [blockRows][]float32) {
	for i := range block {
		block[i] = m.row(min(first+i, rows-1))[:size]
	}
	return block
}

// gatherBlock keeps the inputs that are not zero in all rows of a block, and returns the offsets of
// their weights. The rows of x may be the same slice. A network of many models has hundreds of
// inputs, so it first tests eight at a time.
func (s *lanes) gatherBlock(x *[blockRows][]float32) []int32 {
	size := len(x[0])
	x0, x1, x2, x3 := x[0], x[1][:size], x[2][:size], x[3][:size]
	v0, v1, v2, v3 := s.values[0][:size], s.values[1][:size], s.values[2][:size], s.values[3][:size]
	begins := s.begins[:size]
	kept := 0
	for i := 0; i < size; i++ {
		if i%8 == 0 && i+8 <= size && blank(x0[i:], x1[i:], x2[i:], x3[i:]) {
			i += 7
			continue
		}
		a, b, c, d := x0[i], x1[i], x2[i], x3[i]
		v0[kept], v1[kept], v2[kept], v3[kept] = a, b, c, d
		begins[kept] = int32(i * panel)
		kept += notZero(math.Float32bits(a) | math.Float32bits(b) | math.Float32bits(c) | math.Float32bits(d))
	}
	x[0], x[1], x[2], x[3] = v0[:kept], v1[:kept], v2[:kept], v3[:kept]
	return begins[:kept]
}

// blank reports whether the next eight inputs are zero in all four rows.
func blank(a, b, c, d []float32) bool {
	bits := func(x []float32) archsimd.Int32x8 { return archsimd.LoadFloat32x8Slice(x).AsInt32x8() }
	return bits(a).Or(bits(b)).Or(bits(c).Or(bits(d))).IsZero()
}

// panel512 multiplies the gathered inputs of four rows by 32 columns of weights.
//
// This loop and that of half256 are excluded from race detection: with it they would dominate the
// time of a simulation, and all memory they access belongs to one goroutine.
//
//go:norace
func panel512(x *[blockRows][]float32, begins []int32, weights, bias []float32, out *[blockRows][]float32, at int) {
	x0 := x[0]
	x1, x2, x3, begins := x[1][:len(x0)], x[2][:len(x0)], x[3][:len(x0)], begins[:len(x0)]
	b0, b1 := archsimd.LoadFloat32x16Slice(bias), archsimd.LoadFloat32x16Slice(bias[16:])
	a00, a01, a10, a11 := b0, b1, b0, b1
	a20, a21, a30, a31 := b0, b1, b0, b1
	for i, v := range x0 {
		row := (*[panel]float32)(weights[begins[i]:])
		w0 := archsimd.LoadFloat32x16((*[16]float32)(row[:]))
		w1 := archsimd.LoadFloat32x16((*[16]float32)(row[16:]))
		u := archsimd.BroadcastFloat32x16(v)
		a00, a01 = u.MulAdd(w0, a00), u.MulAdd(w1, a01)
		u = archsimd.BroadcastFloat32x16(x1[i])
		a10, a11 = u.MulAdd(w0, a10), u.MulAdd(w1, a11)
		u = archsimd.BroadcastFloat32x16(x2[i])
		a20, a21 = u.MulAdd(w0, a20), u.MulAdd(w1, a21)
		u = archsimd.BroadcastFloat32x16(x3[i])
		a30, a31 = u.MulAdd(w0, a30), u.MulAdd(w1, a31)
	}
	relu512(out[0][at:], a00, a01)
	relu512(out[1][at:], a10, a11)
	relu512(out[2][at:], a20, a21)
	relu512(out[3][at:], a30, a31)
}

func relu512(out []float32, a, b archsimd.Float32x16) {
	var zero archsimd.Float32x16
	o := (*[panel]float32)(out)
	a.Max(zero).Store((*[16]float32)(o[:]))
	b.Max(zero).Store((*[16]float32)(o[16:]))
}

// half256 is panel512 for 16 columns.
//
//go:norace
func half256(x *[blockRows][]float32, begins []int32, weights, bias []float32, out *[blockRows][]float32, at int) {
	x0 := x[0]
	x1, x2, x3, begins := x[1][:len(x0)], x[2][:len(x0)], x[3][:len(x0)], begins[:len(x0)]
	b0, b1 := archsimd.LoadFloat32x8Slice(bias), archsimd.LoadFloat32x8Slice(bias[8:])
	a00, a01, a10, a11 := b0, b1, b0, b1
	a20, a21, a30, a31 := b0, b1, b0, b1
	for i, v := range x0 {
		row := (*[16]float32)(weights[begins[i]:])
		w0 := archsimd.LoadFloat32x8((*[8]float32)(row[:]))
		w1 := archsimd.LoadFloat32x8((*[8]float32)(row[8:]))
		u := archsimd.BroadcastFloat32x8(v)
		a00, a01 = u.MulAdd(w0, a00), u.MulAdd(w1, a01)
		u = archsimd.BroadcastFloat32x8(x1[i])
		a10, a11 = u.MulAdd(w0, a10), u.MulAdd(w1, a11)
		u = archsimd.BroadcastFloat32x8(x2[i])
		a20, a21 = u.MulAdd(w0, a20), u.MulAdd(w1, a21)
		u = archsimd.BroadcastFloat32x8(x3[i])
		a30, a31 = u.MulAdd(w0, a30), u.MulAdd(w1, a31)
	}
	relu256(out[0][at:], a00, a01)
	relu256(out[1][at:], a10, a11)
	relu256(out[2][at:], a20, a21)
	relu256(out[3][at:], a30, a31)
}

func relu256(out []float32, a, b archsimd.Float32x8) {
	var zero archsimd.Float32x8
	o := (*[16]float32)(out)
	a.Max(zero).Store((*[8]float32)(o[:]))
	b.Max(zero).Store((*[8]float32)(o[8:]))
}
