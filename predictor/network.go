package predictor

import (
	"errors"
	"fmt"
	"math"
)

// MaxRows is the number of rows, one per candidate group, that a network evaluates at a time.
const MaxRows = 64

// panel is the number of outputs that a kernel computes together. The weights of one input for a
// panel are adjacent in memory. Layers are padded to whole panels.
const panel = 32

// Network is a multilayer perceptron with one output, laid out for serving. It owns its working
// memory, so it is not safe for concurrent use.
type Network struct {
	hidden []dense

	// last and bias are the weights and the bias of the single output.
	last []float32
	bias float32

	forward kernel
	inputs  matrix
	outputs []float32
	lanes   lanes

	// odd and even hold the outputs of the hidden layers alternately.
	odd, even matrix
}

// dense is a hidden layer. The weight of input i for output o of panel p is at
// (p*inputs+i)*panel + o, so that a kernel loads the weights of one input for a whole panel at
// once. gather is set for the first layer, where most inputs are usually zero and are skipped.
type dense struct {
	inputs, panels int
	weights        []float32
	bias           []float32
	gather         bool
}

// kernel computes the first rows of y as the outputs of a hidden layer for those of x. All kernels
// sum in the order of the inputs, so that the result of a row does not depend on other rows.
type kernel func(l *dense, s *lanes, x, y matrix, rows int)

// matrix holds rows of equal length.
type matrix struct {
	data   []float32
	stride int
}

func newMatrix(rows, stride int) matrix {
	return matrix{make([]float32, rows*stride), stride}
}

func (m matrix) row(i int) []float32 { return m.data[i*m.stride:][:m.stride:m.stride] }

// NewNetwork returns a network for serving. Each layer must have as many inputs as the layer before
// has outputs, and the last must have one output.
func NewNetwork(layers []Layer) (*Network, error) {
	if err := errors.Join(layerFaults(layers)...); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	end := len(layers) - 1
	n := &Network{
		last:    append([]float32(nil), layers[end].Weights...),
		bias:    layers[end].Bias[0],
		forward: fastest(),
		inputs:  newMatrix(MaxRows, layers[0].Inputs),
		outputs: make([]float32, MaxRows),
	}
	widest, most := panel, layers[0].Inputs
	for i, l := range layers[:end] {
		d := pack(l)
		d.gather = i == 0
		n.hidden = append(n.hidden, d)
		widest = max(widest, d.panels*panel)
		most = max(most, l.Inputs)
	}
	n.odd, n.even = newMatrix(MaxRows, widest), newMatrix(MaxRows, widest)
	n.lanes = newLanes(most)
	return n, nil
}

// pack arranges the weights of a layer in panels.
func pack(l Layer) dense {
	d := dense{inputs: l.Inputs, panels: (l.Outputs + panel - 1) / panel}
	d.weights = make([]float32, d.panels*l.Inputs*panel)
	d.bias = make([]float32, d.panels*panel)
	copy(d.bias, l.Bias)
	for o := range l.Outputs {
		for i, w := range l.Weights[o*l.Inputs:][:l.Inputs] {
			d.weights[(o/panel*l.Inputs+i)*panel+o%panel] = w
		}
	}
	return d
}

// Row returns the inputs of row i, to be set before Run.
func (n *Network) Row(i int) []float32 { return n.inputs.row(i) }

// Run returns the outputs of the first rows. The next call overwrites them. It does not allocate.
func (n *Network) Run(rows int) []float32 {
	x, y, spare := n.inputs, n.odd, n.even
	for i := range n.hidden {
		n.forward(&n.hidden[i], &n.lanes, x, y, rows)
		x, y, spare = y, spare, y
	}
	for r := range rows {
		n.outputs[r] = n.bias + dot(n.last, x.row(r))
	}
	return n.outputs[:rows]
}

// dot returns the dot product of w and the first len(w) elements of x. Eight independent sums let
// the processor overlap the additions.
func dot(w, x []float32) float32 {
	var a, b, c, d, e, f, g, h float32
	for len(w) >= 8 && len(x) >= 8 {
		u, v := (*[8]float32)(w), (*[8]float32)(x)
		a += u[0] * v[0]
		b += u[1] * v[1]
		c += u[2] * v[2]
		d += u[3] * v[3]
		e += u[4] * v[4]
		f += u[5] * v[5]
		g += u[6] * v[6]
		h += u[7] * v[7]
		w, x = w[8:], x[8:]
	}
	x = x[:len(w)]
	for i, v := range w {
		a += v * x[i]
	}
	return ((a + b) + (c + d)) + ((e + f) + (g + h))
}

// blockRows is the number of rows for which a kernel loads the weights only once.
const blockRows = 4

// lanes holds the inputs that a kernel reads: those that are not zero in all rows of a block, and
// the offsets of their weights in a panel. Most inputs are zero, because most models are not in a
// group.
type lanes struct {
	// all holds the offsets for every input, for layers that skip none.
	all    []int32
	begins []int32
	values [blockRows][]float32
}

func newLanes(inputs int) lanes {
	s := lanes{all: make([]int32, inputs), begins: make([]int32, inputs)}
	for i := range s.all {
		s.all[i] = int32(i * panel)
	}
	for r := range s.values {
		s.values[r] = make([]float32, inputs)
	}
	return s
}

// gatherRow returns the inputs of one row that are not zero, and the offsets of their weights.
func (s *lanes) gatherRow(x []float32) ([]float32, []int32) {
	values, begins := s.values[0][:len(x)], s.begins[:len(x)]
	kept := 0
	for i, v := range x {
		values[kept], begins[kept] = v, int32(i*panel)
		kept += notZero(math.Float32bits(v))
	}
	return values[:kept], begins[:kept]
}

// notZero returns 1 if any bit is set and 0 otherwise. It has no branch, because the pattern of
// zero inputs is hard to predict. A negative zero counts as not zero, which is harmless.
func notZero(bits uint32) int { return int((bits | -bits) >> 31) }

// tile is the number of outputs that the plain kernel keeps in registers.
const tile = 8

// plain is the portable kernel. It works row by row and skips zero inputs in every layer, because a
// ReLU makes about half of a hidden layer's outputs zero.
func plain(l *dense, s *lanes, x, y matrix, rows int) {
	for r := range rows {
		values, begins := s.gatherRow(x.row(r)[:l.inputs])
		out := y.row(r)
		for p := range l.panels {
			weights := l.weights[p*l.inputs*panel:][:l.inputs*panel]
			for o := 0; o < panel; o += tile {
				at := p*panel + o
				plainTile(values, begins, weights[o:], (*[tile]float32)(l.bias[at:]), (*[tile]float32)(out[at:]))
			}
		}
	}
}

func plainTile(values []float32, begins []int32, weights []float32, bias, out *[tile]float32) {
	a0, a1, a2, a3, a4, a5, a6, a7 := bias[0], bias[1], bias[2], bias[3], bias[4], bias[5], bias[6], bias[7]
	begins = begins[:len(values)]
	for i, v := range values {
		w := (*[tile]float32)(weights[begins[i]:])
		a0 += v * w[0]
		a1 += v * w[1]
		a2 += v * w[2]
		a3 += v * w[3]
		a4 += v * w[4]
		a5 += v * w[5]
		a6 += v * w[6]
		a7 += v * w[7]
	}
	out[0], out[1], out[2], out[3] = max(a0, 0), max(a1, 0), max(a2, 0), max(a3, 0)
	out[4], out[5], out[6], out[7] = max(a4, 0), max(a5, 0), max(a6, 0), max(a7, 0)
}
