package fit

import "math"

// descent is Adam over plain slices.
type descent struct {
	steps        int
	mean, square []float64
}

func newDescent(parameters int) *descent {
	return &descent{mean: make([]float64, parameters), square: make([]float64, parameters)}
}

// step moves the parameters, which lie one slice after the other, against the
// slope.
func (d *descent) step(rate float64, slope []float64, parameters ...[]float64) {
	d.steps++
	unbiased := math.Sqrt(1-math.Pow(adamBeta2, float64(d.steps))) / (1 - math.Pow(adamBeta1, float64(d.steps)))
	at := 0
	for _, part := range parameters {
		for i := range part {
			g := slope[at]
			d.mean[at] = adamBeta1*d.mean[at] + (1-adamBeta1)*g
			d.square[at] = adamBeta2*d.square[at] + (1-adamBeta2)*g*g
			part[i] -= rate * unbiased * d.mean[at] / (math.Sqrt(d.square[at]) + adamEps)
			at++
		}
	}
}
