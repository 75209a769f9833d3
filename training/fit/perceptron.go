package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	_ "go4.org/unsafe/assume-no-moving-gc" // gorgonia panics with a version that does not know this Go
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/overlapd/overlapd/predictor"
)

// perceptron is a multilayer perceptron that is being trained: a graph of one
// batch of rows. Its input tensors are written in place before each step.
type perceptron struct {
	graph   *gorgonia.ExprGraph
	machine gorgonia.VM
	batch   int

	// widths are those of the inputs, of the hidden layers, and 1; params are the
	// weights and the bias of each layer in turn.
	widths []int
	params []param

	inputs  []float32
	targets []float32
	loss    gorgonia.Value
}

// param is the weights or the bias of a layer, and the gradient of the loss.
type param struct {
	node   *gorgonia.Node
	values []float32
	decays bool
}

// lossOf builds the loss that training minimizes.
type lossOf uint8

const (
	relative lossOf = iota // mean of |exp(scale*(output-target)) - 1|
	squared                // mean of (output-target)²
)

// building is held while a graph is built: gorgonia counts its groups of nodes
// in a variable of the package.
var building sync.Mutex

// newPerceptron makes a network with random weights. The scale is that of the
// relative loss.
func newPerceptron(widths []int, batch int, of lossOf, scale float32, random *rand.Rand) (*perceptron, error) {
	building.Lock()
	defer building.Unlock()
	p := &perceptron{graph: gorgonia.NewGraph(), batch: batch, widths: widths}
	var x, t *gorgonia.Node
	x, p.inputs = p.matrix("x", batch, widths[0])
	t, p.targets = p.matrix("t", batch, 1)
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

// matrix adds an input whose memory is the slice.
func (p *perceptron) matrix(name string, rows, columns int) (*gorgonia.Node, []float32) {
	values := make([]float32, rows*columns)
	t := tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(values))
	return gorgonia.NewMatrix(p.graph, gorgonia.Float32, gorgonia.WithShape(rows, columns),
		gorgonia.WithName(name), gorgonia.WithValue(t)), values
}

func (p *perceptron) param(name string, rows, columns int) *gorgonia.Node {
	node, values := p.matrix(name, rows, columns)
	p.params = append(p.params, param{node: node, values: values})
	return node
}

func (p *perceptron) nodes() gorgonia.Nodes {
	nodes := make(gorgonia.Nodes, len(p.params))
	for i := range p.params {
		nodes[i] = p.params[i].node
	}
	return nodes
}

// begin draws the parameters of a layer: for the relative loss as Glorot says,
// and for the squared one, which is the paper's, as PyTorch does, with which
// its authors worked.
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

func uniform(values []float32, limit float64, random *rand.Rand) {
	for i := range values {
		values[i] = float32((2*random.Float64() - 1) * limit)
	}
}

// step computes loss and gradients of the batch in inputs and targets, and
// lets o change the weights.
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
		gradient := g.Data().([]float32)
		o.update(i, &p.params[i], gradient)
		clear(gradient) // the machine adds to it
	}
	p.machine.Reset()
	return float64(p.loss.Data().(float32)), nil
}

func (p *perceptron) close() { _ = p.machine.Close() } // it holds no resource that could fail

// layers returns the network for inputs and outputs that are not
// scaled: those of the rows are (input-mean)/spread, and output*scale is what
// was to be predicted.
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

// optimizer changes weights by gradients.
type optimizer interface {
	start(p *perceptron)
	begin(rate float64) // begins a step
	update(i int, p *param, gradient []float32)
}

// sgd is stochastic gradient descent.
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

// adam is Adam with the decay of weights apart from the gradient.
type adam struct {
	decay  float64
	rate   float64
	steps  int
	mean   [][]float32
	square [][]float32
}

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

// step moves the parameters, which lie one slice after the other, against the
// slope.
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
