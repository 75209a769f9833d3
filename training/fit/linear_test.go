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

func worst(h *hyperplane, in *inputs) float64 {
	most := 0.0
	for i := range in.rows() {
		most = max(most, math.Abs(h.micros(in.row(i))-in.micros[i]))
	}
	return most
}

func TestLinearIsExactOnAPlane(t *testing.T) {
	in := linearRows(200, 0)
	h, err := fitLinear(in)
	if err != nil {
		t.Fatal(err)
	}
	if off := worst(h, in); off > 0.01 {
		t.Errorf("off by %v µs on a plane", off)
	}
}

func TestVectorsStayInTheTube(t *testing.T) {
	in := linearRows(300, 0)
	newScaling(in).apply(in)
	h := fitVectors(in, rand.New(rand.NewPCG(1, 2)))
	if off := worst(h, in) / microsPerMilli; off > svrTube*1.05 {
		t.Errorf("a row lies %v ms from the plane, the tube is %v ms wide", off, svrTube)
	}
}

// A few wild rows move a plane of least squares, and not that of support
// vectors.
func TestVectorsIgnoreOutliers(t *testing.T) {
	in := linearRows(300, 0)
	newScaling(in).apply(in)
	honest := append([]float64(nil), in.micros...)
	for i := 0; i < 300; i += 30 {
		in.micros[i] += 100_000
	}
	vectors := fitVectors(in, rand.New(rand.NewPCG(1, 2)))
	linear, err := fitLinear(in)
	if err != nil {
		t.Fatal(err)
	}
	in.micros = honest
	if v, l := worst(vectors, in), worst(linear, in); v > 300 || l < 1000 {
		t.Errorf("off by %v µs with support vectors, %v µs with least squares", v, l)
	}
}
