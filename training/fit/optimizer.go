package fit

import "math"

// optimizer changes weights by gradients.
type optimizer interface {
	begin(rate float64) // begins a step
	update(i int, p *param, gradient []float32)
}

// sgd is stochastic gradient descent.
type sgd struct{ rate float32 }

func (s *sgd) begin(rate float64) { s.rate = float32(rate) }

func (s *sgd) update(_ int, p *param, gradient []float32) {
	for i, g := range gradient {
		p.values[i] -= s.rate * g
	}
}

// The usual constants of Adam.
const (
	adamBeta1 = 0.9
	adamBeta2 = 0.999
	adamEps   = 1e-8
)

// adam is Adam with the decay of weights apart from the gradient.
type adam struct {
	decay  float64
	rate   float64
	steps  int
	mean   [][]float32
	square [][]float32
}

func (a *adam) begin(rate float64) {
	a.steps++
	a.rate = rate
}

func (a *adam) update(i int, p *param, gradient []float32) {
	for len(a.mean) <= i {
		a.mean, a.square = append(a.mean, nil), append(a.square, nil)
	}
	if a.mean[i] == nil {
		a.mean[i], a.square[i] = make([]float32, len(gradient)), make([]float32, len(gradient))
	}
	keep := float32(1)
	if p.decays {
		keep = float32(1 - a.rate*a.decay)
	}
	mean, square := a.mean[i], a.square[i]
	unbiased := math.Sqrt(1 - math.Pow(adamBeta2, float64(a.steps)))
	rate := float32(a.rate * unbiased / (1 - math.Pow(adamBeta1, float64(a.steps))))
	eps := float32(adamEps * unbiased)
	for j, g := range gradient {
		mean[j] = adamBeta1*mean[j] + (1-adamBeta1)*g
		square[j] = adamBeta2*square[j] + (1-adamBeta2)*g*g
		p.values[j] = p.values[j]*keep - rate*mean[j]/(float32(math.Sqrt(float64(square[j])))+eps)
	}
}

// cosine falls from 1 to 0 over the steps.
func cosine(step, steps int) float64 {
	return (1 + math.Cos(math.Pi*float64(step)/float64(steps))) / 2
}

// warmUp is the part of the steps over which the rate of oneCycle rises.
const warmUp = 0.1

// oneCycle rises from a tenth to 1 and then falls as cosine does.
func oneCycle(step, steps int) float64 {
	rise := int(warmUp * float64(steps))
	if step < rise {
		return 1 - 0.9*cosine(step, rise)
	}
	return cosine(step-rise, steps-rise)
}

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
