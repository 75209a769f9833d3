package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// signed is Adam for the network of a device, which never falls when one of
// its growing inputs rises: it sets weights of the wrong sign to zero.
type signed struct {
	adam
	widths  []int
	growing []bool
}

// start turns weights around that have the other sign. All units of a layer
// then pull one way, so weights are made smaller: each layer passes on about
// what it is given.
func (s *signed) start(p *perceptron) {
	for layer := range len(s.widths) - 1 {
		gain := float32(1)
		if in, out := float64(s.widths[layer]), float64(s.widths[layer+1]); layer > 0 {
			gain = float32(4 / in / math.Sqrt(6/(in+out)))
		}
		s.each(layer, p.params[2*layer].values, func(v, sign float32) float32 {
			return gain * sign * float32(math.Abs(float64(v)))
		})
	}
}

func (s *signed) each(layer int, values []float32, f func(v, sign float32) float32) {
	inputs, outputs := s.widths[layer], s.widths[layer+1]
	for at := range values {
		sign := device.Sign(layer, len(s.widths)-1, at/outputs, inputs, at%outputs, outputs, s.growing)
		if sign != 0 {
			values[at] = f(values[at], float32(sign))
		}
	}
}

func (s *signed) update(i int, p *param, gradient []float32) {
	s.adam.update(i, p, gradient)
	if p.decays {
		s.each(i/2, p.values, func(v, sign float32) float32 {
			if v*sign < 0 {
				return 0
			}
			return v
		})
	}
}

// fitGrowing fits the network of a device to rows.
func fitGrowing(ctx context.Context, list []predictor.FeatureModel, rows []training.Row, o *Options, stage string) ([]predictor.Layer, error) {
	random := rand.New(rand.NewPCG(o.Seed, 3))
	encoder := device.NewEncoder(list)
	in := encodeDevice(encoder, rows)
	targets, scale := in.targets(RecipeOurs)
	scaled := newScaling(in)
	scaled.apply(in)
	widths := slices.Concat([]int{in.width}, o.Hidden, []int{1})
	plan := newSchedule(o, len(rows))
	p, err := newPerceptron(widths, plan.batch, relative, float32(scale), random)
	if err != nil {
		return nil, err
	}
	defer p.close()
	s := &signed{adam: adam{decay: oursDecay}, widths: widths, growing: encoder.Growing()}
	s.start(p)
	if err := p.train(ctx, in, targets, plan, s, o, random, stage); err != nil {
		return nil, err
	}
	return p.layers(scaled, scale), nil
}

func encodeDevice(e *device.Encoder, rows []training.Row) *inputs {
	in := &inputs{width: e.Width(), values: make([]float32, len(rows)*e.Width()), bases: make([]float64, len(rows)), micros: make([]float64, len(rows))}
	for i := range rows {
		in.bases[i] = e.Encode(rows[i].Group.Spans, in.row(i))
		in.micros[i] = rows[i].Median
	}
	return in
}
