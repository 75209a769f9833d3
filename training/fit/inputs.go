package fit

import (
	"math"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// inputs is what a network sees of rows, and what it should say.
type inputs struct {
	width  int
	values []float32 // by row
	bases  []float64 // microseconds
	micros []float64 // measured
}

func encode(e *predictor.Encoder, rows []training.Row) *inputs {
	in := &inputs{
		width:  e.Width(),
		values: make([]float32, len(rows)*e.Width()),
		bases:  make([]float64, len(rows)),
		micros: make([]float64, len(rows)),
	}
	for i := range rows {
		in.bases[i] = e.Encode(rows[i].Group, in.row(i))
		in.micros[i] = rows[i].Median
	}
	return in
}

func (in *inputs) rows() int { return len(in.bases) }

func (in *inputs) row(i int) []float32 { return in.values[i*in.width:][:in.width] }

// scaling is means and spreads of inputs.
type scaling struct {
	mean, spread []float64
}

// leastSpread is that of an input that counts as constant.
const leastSpread = 1e-6

func newScaling(in *inputs) *scaling {
	s := &scaling{mean: make([]float64, in.width), spread: make([]float64, in.width)}
	n := float64(in.rows())
	for i := range in.rows() {
		for j, v := range in.row(i) {
			s.mean[j] += float64(v) / n
		}
	}
	for i := range in.rows() {
		for j, v := range in.row(i) {
			d := float64(v) - s.mean[j]
			s.spread[j] += d * d / n
		}
	}
	for j, v := range s.spread {
		if s.spread[j] = math.Sqrt(v); s.spread[j] < leastSpread {
			s.spread[j] = 1
		}
	}
	return s
}

// leave makes apply leave the first inputs as they are.
func (s *scaling) leave(first int) {
	for j := range first {
		s.mean[j], s.spread[j] = 0, 1
	}
}

// apply standardises the inputs in place.
func (s *scaling) apply(in *inputs) {
	for i := range in.rows() {
		for j, v := range in.row(i) {
			in.row(i)[j] = float32((float64(v) - s.mean[j]) / s.spread[j])
		}
	}
}
