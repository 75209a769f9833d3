package fit

import (
	"math"
	"math/rand/v2"
	"testing"
)

// linearRows returns rows whose latency is a plane over two inputs; a third is
// constant, and a fourth repeats the first.
func linearRows(n int, noise float64) *inputs {
	random := rand.New(rand.NewPCG(1, 1))
	in := &inputs{width: 4}
	for range n {
		a, b := random.Float64(), random.Float64()
		in.values = append(in.values, float32(a), float32(b), 1, float32(a))
		in.bases = append(in.bases, 1000)
		in.micros = append(in.micros, 1000*(5+2*float64(float32(a))-3*float64(float32(b))+noise*random.NormFloat64()))
	}
	return in
}

func worst(h hyperplane, in *inputs) float64 {
	most := 0.0
	for i := range in.rows() {
		most = max(most, math.Abs(h.micros(in.row(i))-in.micros[i]))
	}
	return most
}

func TestLinearIsExactOnAPlane(t *testing.T) {
	in := linearRows(200, 0)
	if off := worst(fitLinear(in), in); off > 0.01 {
		t.Errorf("off by %v µs on a plane", off)
	}
}

// The weights are at the lowest of what support vector regression makes small:
// half their squares and the squares of what lies outside the tube.
func TestVectorsAreOptimal(t *testing.T) {
	in := linearRows(300, 1)
	newScaling(in).apply(in)
	h := fitVectors(in, rand.New(rand.NewPCG(1, 2)))
	slope := append([]float64(nil), h...)
	outside := 0
	for i := range in.rows() {
		off := (h.micros(in.row(i)) - in.micros[i]) / microsPerMilli
		if math.Abs(off) <= svrTube {
			continue
		}
		outside++
		pull := 2 * svrPenalty * math.Copysign(math.Abs(off)-svrTube, off)
		for j, v := range in.row(i) {
			slope[j] += pull * float64(v)
		}
		slope[len(slope)-1] += pull
	}
	for j, s := range slope {
		if math.Abs(s) > 0.05 {
			t.Errorf("weight %d: the slope is %v", j, s)
		}
	}
	if outside == 0 || outside == in.rows() {
		t.Errorf("%d of %d rows lie outside the tube", outside, in.rows())
	}
}
