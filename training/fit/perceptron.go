package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	// gorgonia panics with a version of this package that does not know this version of Go.
	_ "go4.org/unsafe/assume-no-moving-gc"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/overlapd/overlapd/predictor"
)

// perceptron is a multilayer perceptron in training: a computation graph for one batch of rows.
// Inputs and targets are written in place before each step.
type perceptron struct {
	graph   *gorgonia.ExprGraph
	machine gorgonia.VM
	batch   int

	// widths holds the number of inputs, the units of the hidden layers, and 1. params alternates
	// the weights and the bias of each layer.
	widths []int
	params []param

	inputs  []float32
	targets []float32
	loss    gorgonia.Value
}

// param holds the weights or the bias of a layer. decays is set for weights.
type param struct {
	node   *gorgonia.Node
	values []float32
	decays bool
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

// building must be held while a graph is built, because gorgonia counts groups of nodes in a
// package variable.
var building sync.Mutex

// newPerceptron returns a network with random weights. scale applies to the relative loss.
func newPerceptron(widths []int, batch int, of lossOf, scale float32, random *rand.Rand) (*perceptron, error) {
	building.Lock()
	defer building.Unlock()
	p := &perceptron{graph: gorgonia.NewGraph(), batch: batch, widths: widths}
	var x, t *gorgonia.Node
	x, p.inputs = p.matrix("x", batch, widths[0])
	t, p.targets = p.matrix("t", batch, 1)
	// Multiplying a column of ones by the bias adds it to every row of the batch.
	ones, filled := p.matrix("ones", batch, 1)
	copy(filled, slices.Repeat([]float32{1}, batch))
	for i := range len(widths) - 1 {
		w := p.param(fmt.Sprint("w", i), widths[i], widths[i+1])
		b := p.param(fmt.Sprint("b", i), 1, widths[i+1])
		p.begin(i, of, random)
		x = gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Mul(x, w)), gorgonia.Must(gorgonia.Mul(ones, b))))
		if i < len(widths)-2 {
			x = gorgonia.Must(gorgonia.Rectify(x))
		}
	}
	off := gorgonia.Must(gorgonia.Sub(x, t))
	var each *gorgonia.Node
	if of == squared {
		each = gorgonia.Must(gorgonia.Square(off))
	} else {
		factor, scales := p.matrix("scale", batch, 1)
		copy(scales, slices.Repeat([]float32{scale}, batch))
		ratio := gorgonia.Must(gorgonia.Exp(gorgonia.Must(gorgonia.HadamardProd(off, factor))))
		each = gorgonia.Must(gorgonia.Abs(gorgonia.Must(gorgonia.Sub(ratio, ones))))
	}
	cost := gorgonia.Must(gorgonia.Mean(each))
	gorgonia.Read(cost, &p.loss)
	if _, err := gorgonia.Grad(cost, p.nodes()...); err != nil {
		return nil, err
	}
	p.machine = gorgonia.NewTapeMachine(p.graph, gorgonia.BindDualValues(p.nodes()...))
	return p, nil
}

// matrix adds an input to the graph. Its memory is the returned slice.
func (p *perceptron) matrix(name string, rows, columns int) (*gorgonia.Node, []float32) {
	values := make([]float32, rows*columns)
	t := tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(values))
	return gorgonia.NewMatrix(p.graph, gorgonia.Float32, gorgonia.WithShape(rows, columns),
		gorgonia.WithName(name), gorgonia.WithValue(t)), values
}

// param adds a parameter to the graph.
func (p *perceptron) param(name string, rows, columns int) *gorgonia.Node {
	node, values := p.matrix(name, rows, columns)
	p.params = append(p.params, param{node: node, values: values})
	return node
}

// nodes returns the graph's nodes of the parameters, by which the loss is differentiated.
func (p *perceptron) nodes() gorgonia.Nodes {
	nodes := make(gorgonia.Nodes, len(p.params))
	for i := range p.params {
		nodes[i] = p.params[i].node
	}
	return nodes
}

// begin initializes the parameters of a layer. The relative loss uses Glorot initialization.
// The squared loss, which is the paper's, uses the default of PyTorch, the library of its
// authors.
func (p *perceptron) begin(layer int, of lossOf, random *rand.Rand) {
	in, out := float64(p.widths[layer]), float64(p.widths[layer+1])
	weights, bias := &p.params[2*layer], &p.params[2*layer+1]
	weights.decays = true
	if of == squared {
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

// step computes the loss and the gradients of the current batch, and lets o update the parameters.
func (p *perceptron) step(o optimizer, rate float64) (loss float64, err error) {
	if err := p.machine.RunAll(); err != nil {
		return 0, err
	}
	o.begin(rate)
	for i := range p.params {
		g, err := p.params[i].node.Grad()
		if err != nil {
			return 0, err
		}
		// All tensors of the graph are float32, so the conversion cannot fail.
		gradient := g.Data().([]float32)
		o.update(i, &p.params[i], gradient)
		// The machine adds to the gradient in the next step.
		clear(gradient)
	}
	p.machine.Reset()
	return float64(p.loss.Data().(float32)), nil
}

// Closing a tape machine cannot fail in a way that matters: it holds no external resource.
func (p *perceptron) close() { _ = p.machine.Close() }

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
