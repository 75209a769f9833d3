package predictor

import (
	"errors"
	"fmt"
	"math"
)

// MaxRows is how many candidates a network takes at a time.
const MaxRows = 64

// panel is how many outputs of a layer are computed together, with all their
// weights of one input side by side. Layers are padded to whole panels.
const panel = 32

// Network is a multilayer perceptron with one output, laid out for serving.
// It owns the memory that it works in and so is not safe for concurrent use.
type Network struct {
	hidden []dense

	// last and bias are the weights and the bias of the only output.
	last []float32
	bias float32

	forward kernel
	inputs  matrix
	outputs []float32
	lanes   lanes

	// The hidden layers leave their outputs in odd and even, in turn.
	odd, even matrix
}

// dense is a layer whose weights lie panel by panel, and in each by input: that of
// output o of panel p and input i at (p*inputs+i)*panel + o. A kernel then loads the
// weights of one input for a whole panel at once. gather is set for the first layer,
// most of whose inputs may be zero.
type dense struct {
	inputs, panels int
	weights        []float32
	bias           []float32
	gather         bool
}

// kernel sets the first rows of y to what a hidden layer makes of those of x.
// All kernels add up in the order of the inputs, so that a row gives the same
// whatever rows are beside it.
type kernel func(l *dense, s *lanes, x, y matrix, rows int)

// matrix is rows of one length.
type matrix struct {
	data   []float32
	stride int
}

func newMatrix(rows, stride int) matrix {
	return matrix{make([]float32, rows*stride), stride}
}

func (m matrix) row(i int) []float32 { return m.data[i*m.stride:][:m.stride:m.stride] }

// NewNetwork lays layers out for serving. They must follow one another and
// end in one output.
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

// Row returns the inputs of a row, to be set before Run.
func (n *Network) Row(i int) []float32 { return n.inputs.row(i) }

// Run returns the outputs of the first rows. They are overwritten by the next
// call. It does not allocate.
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

// dot returns the product of w and as many elements of x.
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

// blockRows is how many rows share one reading of the weights.
const blockRows = 4

// lanes is what a kernel reads instead of whole rows: the inputs that are not
// zero in all rows of a block, and where their weights begin in a panel. Most
// inputs are zero, since most models are not in a group.
type lanes struct {
	all    []int32 // where the weights of every input begin
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

// gatherRow keeps what is not zero of one row.
func (s *lanes) gatherRow(x []float32) ([]float32, []int32) {
	values, begins := s.values[0][:len(x)], s.begins[:len(x)]
	kept := 0
	for i, v := range x {
		values[kept], begins[kept] = v, int32(i*panel)
		kept += notZero(math.Float32bits(v))
	}
	return values[:kept], begins[:kept]
}

// notZero is 1 or 0. It has no branch, since which inputs are zero is hard to
// guess.
func notZero(bits uint32) int { return int((bits | -bits) >> 31) }

// tile is how many outputs the plain kernel keeps in registers.
const tile = 8

// plain is the kernel for every machine: row by row, without what is zero. Of
// what a hidden layer leaves, half is.
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
