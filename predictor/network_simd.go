//go:build goexperiment.simd && amd64

package predictor

import "simd/archsimd"

// fastest returns the fastest kernel of this build on this machine.
func fastest() kernel {
	switch cpu := archsimd.X86; {
	case cpu.AVX512():
		return avx512
	case cpu.AVX2() && cpu.FMA():
		return avx2
	}
	return plain
}

// avx512 is the kernel for 512-bit vectors: a panel is two of them.
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

// avx2 is the kernel for 256-bit vectors: a panel is two times two of them.
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

// blockOf returns the rows of a block. One that has fewer repeats its last.
func blockOf(m matrix, first, rows, size int) (block [blockRows][]float32) {
	for i := range block {
		block[i] = m.row(min(first+i, rows-1))[:size]
	}
	return block
}

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
