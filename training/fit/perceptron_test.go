package fit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/overlapd/overlapd/predictor"
)

// forward computes the network row by row.
func forward(layers []predictor.Layer, x []float32) float64 {
	row := make([]float64, len(x))
	for i, v := range x {
		row[i] = float64(v)
	}
	for k, l := range layers {
		next := make([]float64, l.Outputs)
		for o := range next {
			next[o] = float64(l.Bias[o])
			for i, v := range row {
				next[o] += v * float64(l.Weights[o*l.Inputs+i])
			}
			if k < len(layers)-1 {
				next[o] = max(next[o], 0)
			}
		}
		row = next
	}
	return row[0]
}

func identity(width int) *scaling {
	s := &scaling{mean: make([]float64, width), spread: make([]float64, width)}
	for j := range width {
		s.spread[j] = 1
	}
	return s
}

// lossBeside computes the loss of the batch row by row.
func lossBeside(p *perceptron, of lossOf, scale float64) float64 {
	layers := p.layers(identity(p.widths[0]), 1)
	sum := 0.0
	for i := range p.batch {
		off := forward(layers, p.inputs[i*p.widths[0]:][:p.widths[0]]) - float64(p.targets[i])
		if of == squared {
			sum += off * off
		} else {
			sum += math.Abs(math.Exp(scale*off) - 1)
		}
	}
	return sum / float64(p.batch)
}

// still keeps the weights and remembers the gradients.
type still struct{ gradients [][]float32 }

func (s *still) start(*perceptron) {}

func (s *still) begin(float64) {}

func (s *still) update(_ int, _ *param, g []float32) {
	s.gradients = append(s.gradients, append([]float32(nil), g...))
}

func TestStepComputesLossAndGradients(t *testing.T) {
	for _, of := range []lossOf{relative, squared} {
		const scale = 0.5
		random := rand.New(rand.NewPCG(1, 1))
		p := newPerceptron([]int{3, 5, 4, 1}, 8, of, scale, random)
		for i := range p.inputs {
			p.inputs[i] = float32(random.NormFloat64())
		}
		for i := range p.targets {
			p.targets[i] = float32(random.NormFloat64())
		}
		for range 2 { // gradients of one step must not reach the next
			var s still
			loss := p.step(&s, 0)
			if want := lossBeside(p, of, scale); math.Abs(loss-want) > 1e-5 {
				t.Errorf("loss %v, beside it %v", loss, want)
			}
			checkGradients(t, p, s.gradients, of, scale)
		}
	}
}

func checkGradients(t *testing.T, p *perceptron, gradients [][]float32, of lossOf, scale float64) {
	t.Helper()
	const step = 1e-3
	for i := range p.params {
		for j := range p.params[i].values {
			at := &p.params[i].values[j]
			was := *at
			*at = was + step
			high := lossBeside(p, of, scale)
			*at = was - step
			low := lossBeside(p, of, scale)
			*at = was
			if want := (high - low) / (2 * step); math.Abs(float64(gradients[i][j])-want) > 0.02*(1+math.Abs(want)) {
				t.Errorf("loss %d, parameter %d of %d: %v, by differences %v", of, j, i, gradients[i][j], want)
			}
		}
	}
}

func TestOptimizersFindTheLowest(t *testing.T) {
	for name, o := range map[string]optimizer{"sgd": &sgd{}, "adam": &adam{}} {
		p := param{values: []float32{4, -3}, decays: true}
		o.start(&perceptron{params: []param{p}})
		for range 400 {
			o.begin(0.05)
			o.update(0, &p, []float32{2 * (p.values[0] - 1), 2 * p.values[1]})
		}
		if math.Abs(float64(p.values[0]-1)) > 0.05 || math.Abs(float64(p.values[1])) > 0.05 {
			t.Errorf("%s ends at %v", name, p.values)
		}
	}
	p := param{values: []float32{4}, decays: true}
	a := &adam{decay: 1}
	a.start(&perceptron{params: []param{p}})
	a.begin(0.5)
	if a.update(0, &p, []float32{0}); p.values[0] != 2 {
		t.Errorf("decayed from 4 to %v", p.values[0])
	}
}
