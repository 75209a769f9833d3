package fit

import (
	"math"
	"math/rand/v2"

	"github.com/chewxy/math32"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/overlapd/overlapd/predictor"
)

// perceptron is a multilayer perceptron in training on batches of rows. Inputs and targets are
// written in place before each step.
type perceptron struct {
	batch int
	of    lossOf
	scale float32

	// widths holds the number of inputs, the units of the hidden layers, and 1. params alternates
	// the weights and the bias of each layer.
	widths []int
	params []param

	inputs  []float32
	targets []float32

	// outputs holds the outputs of each layer for each row, before hidden ones are rectified in
	// active. slopes holds the derivatives of the loss by outputs.
	outputs, active, slopes [][]float32
}

// param holds the weights or the bias of a layer and the derivatives of the loss by them. decays is
// set for weights.
type param struct {
	values, gradient []float32
	decays           bool
}

// lossOf selects the loss that training minimizes.
type lossOf uint8

// The losses of the recipes: relative for RecipeOurs and squared for RecipePaper.
const (
	// relative is the mean of |exp(scale*(output-target)) - 1|.
	relative lossOf = iota
	// squared is the mean of (output-target)².
	squared
)

// newPerceptron returns a network with random weights. scale applies to the relative loss.
func newPerceptron(widths []int, batch int, of lossOf, scale float32, random *rand.Rand) *perceptron {
	p := &perceptron{batch: batch, of: of, scale: scale, widths: widths, inputs: make([]float32, batch*widths[0]), targets: make([]float32, batch)}
	for i := range len(widths) - 1 {
		in, out := widths[i], widths[i+1]
		for _, n := range []int{in * out, out} {
			p.params = append(p.params, param{values: make([]float32, n), gradient: make([]float32, n)})
		}
		p.begin(i, random)
		p.outputs, p.active, p.slopes = append(p.outputs, make([]float32, batch*out)), append(p.active, make([]float32, batch*out)), append(p.slopes, make([]float32, batch*out))
	}
	return p
}

// begin initializes the parameters of a layer. The relative loss uses Glorot initialization.
// The squared loss, which is the paper's, uses the default of PyTorch, the library of its
// authors.
func (p *perceptron) begin(layer int, random *rand.Rand) {
	in, out := float64(p.widths[layer]), float64(p.widths[layer+1])
	weights, bias := &p.params[2*layer], &p.params[2*layer+1]
	weights.decays = true
	if p.of == squared {
		uniform(weights.values, 1/math.Sqrt(in), random)
		uniform(bias.values, 1/math.Sqrt(in), random)
		return
	}
	uniform(weights.values, math.Sqrt(6/(in+out)), random)
}

// uniform draws values from [-limit, limit).
func uniform(values []float32, limit float64, random *rand.Rand) {
	for i := range values {
		values[i] = float32((2*random.Float64() - 1) * limit)
	}
}

// multiply computes c = a b for matrices of m rows and n columns, with the inner dimension k. The
// letters say which of a and b are transposed.
func multiply(ta, tb blas.Transpose, m, n, k int, a, b, c []float32) {
	wide := func(t blas.Transpose, rows, columns int) int {
		if t == blas.Trans {
			return rows
		}
		return columns
	}
	gonum.Implementation{}.Sgemm(ta, tb, m, n, k, 1, a, wide(ta, m, k), b, wide(tb, k, n), 0, c, n)
}

// step computes the loss and the gradients of the current batch, and lets o update the parameters.
func (p *perceptron) step(o optimizer, rate float64) (loss float64) {
	last := len(p.outputs) - 1
	x := p.inputs
	for i, out := range p.outputs {
		n, bias := p.widths[i+1], p.params[2*i+1].values
		multiply(blas.NoTrans, blas.NoTrans, p.batch, n, p.widths[i], x, p.params[2*i].values, out)
		for at := range out {
			out[at] += bias[at%n]
			p.active[i][at] = max(out[at], 0)
		}
		x = p.active[i]
	}
	loss = p.compare(p.outputs[last], p.slopes[last])
	o.begin(rate)
	for i := last; i >= 0; i-- {
		n, weights, bias := p.widths[i+1], &p.params[2*i], &p.params[2*i+1]
		clear(bias.gradient)
		for at, s := range p.slopes[i] {
			bias.gradient[at%n] += s
		}
		if x = p.inputs; i > 0 {
			x = p.active[i-1]
			multiply(blas.NoTrans, blas.Trans, p.batch, p.widths[i], n, p.slopes[i], weights.values, p.slopes[i-1])
			for at, v := range p.outputs[i-1] {
				if v < 0 {
					p.slopes[i-1][at] = 0
				}
			}
		}
		multiply(blas.Trans, blas.NoTrans, p.widths[i], n, p.batch, x, p.slopes[i], weights.gradient)
	}
	for i := range p.params {
		o.update(i, &p.params[i], p.params[i].gradient)
	}
	return loss
}

// compare returns the loss of the outputs, and sets their slopes.
func (p *perceptron) compare(outputs, slopes []float32) (loss float64) {
	each := 1 / float32(p.batch)
	for i, v := range outputs {
		off := v - p.targets[i]
		if p.of == squared {
			loss += float64(off * off)
			slopes[i] = 2 * off * each
			continue
		}
		ratio := math32.Exp(off * p.scale)
		loss += math.Abs(float64(ratio - 1))
		slopes[i] = 0
		if ratio != 1 {
			slopes[i] = math32.Copysign(each, ratio-1) * ratio * p.scale
		}
	}
	return loss / float64(p.batch)
}

// layers returns the trained network for unscaled inputs and outputs. It folds the standardization
// (input-mean)/spread into the first layer and the factor scale into the last.
func (p *perceptron) layers(in *scaling, scale float64) []predictor.Layer {
	layers := make([]predictor.Layer, len(p.widths)-1)
	for i := range layers {
		w, b := p.params[2*i].values, p.params[2*i+1].values
		l := predictor.Layer{Inputs: p.widths[i], Outputs: p.widths[i+1], Bias: make([]float32, len(b))}
		l.Weights = make([]float32, len(w))
		for o := range l.Outputs {
			bias := float64(b[o])
			for j := range l.Inputs {
				weight := float64(w[j*l.Outputs+o])
				if i == 0 {
					weight /= in.spread[j]
					bias -= weight * in.mean[j]
				}
				if i == len(layers)-1 {
					weight *= scale
				}
				l.Weights[o*l.Inputs+j] = float32(weight)
			}
			if i == len(layers)-1 {
				bias *= scale
			}
			l.Bias[o] = float32(bias)
		}
		layers[i] = l
	}
	return layers
}

// optimizer updates parameters by their gradients. Each step calls begin and then update for every
// parameter.
type optimizer interface {
	start(p *perceptron)
	begin(rate float64)
	update(i int, p *param, gradient []float32)
}

// sgd is stochastic gradient descent without momentum.
type sgd struct{ rate float32 }

func (*sgd) start(*perceptron) {}

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

// adam is Adam with decoupled weight decay (AdamW).
type adam struct {
	decay  float64
	rate   float64
	steps  int
	mean   [][]float32
	square [][]float32
}

// start allocates the moments of all parameters.
func (a *adam) start(p *perceptron) {
	for _, part := range p.params {
		a.mean = append(a.mean, make([]float32, len(part.values)))
		a.square = append(a.square, make([]float32, len(part.values)))
	}
}

func (a *adam) begin(rate float64) {
	a.steps++
	a.rate = rate
}

func (a *adam) update(i int, p *param, gradient []float32) {
	// Decay multiplies the weight itself and so does not pass through the moments.
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

// warmUp is the fraction of the steps over which the rate of oneCycle rises.
const warmUp = 0.1

// oneCycle rises from a tenth to 1 and then falls as cosine does.
func oneCycle(step, steps int) float64 {
	rise := int(warmUp * float64(steps))
	if step < rise {
		return 1 - 0.9*cosine(step, rise)
	}
	return cosine(step-rise, steps-rise)
}

// descent is Adam on plain slices, for the costs, which need no graph.
type descent struct {
	steps        int
	mean, square []float64
}

// step moves the parameters against the gradient slope, whose sections correspond to the slices.
//
//go:norace
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
