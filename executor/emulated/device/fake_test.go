package device

import (
	"math"
	"math/rand/v2"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// random is a device whose network keeps the promises and is otherwise random.
func random(seed uint64) *Profile {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &Profile{
		Format: Format, Device: "dice", Rows: 1,
		Spread: Spread{Slow: 1.3, Fast: 0.7, Bands: []SpreadBand{
			{Spans: 1, Parts: []float64{0.01, 0.02, 0.1}}, {Spans: 2, Parts: []float64{0.05, 0.05}},
			{Spans: 2, Micros: 500, Parts: []float64{0.2, 0.2}},
		}},
	}
	p.Test.Alone, p.Test.Several = exact(), exact()
	p.Network.Spans = 4
	p.Network.Models = []predictor.FeatureModel{
		model(r, "a", 7, []int{1, 4, 8}, []int{0}), model(r, "b", 12, []int{4, 8}, []int{8, 16, 64}),
		model(r, "c", 1, []int{2}, []int{0}), model(r, "d", 20, []int{4, 32}, []int{0}),
	}
	p.Network.Layers = layers(r, NewEncoder(p.Network.Models), 16, 16)
	return p
}

func exact() predictor.Errors {
	return predictor.Errors{Rows: 1, Quantiles: predictor.Quantiles{P01: 1, P50: 1, P90: 1, P95: 1, P99: 1}}
}

func model(r *rand.Rand, name string, operators int, sizes, seqLens []int) predictor.FeatureModel {
	m := predictor.FeatureModel{Name: name, Operators: operators, MaxSize: sizes[len(sizes)-1], MaxSeqLen: seqLens[len(seqLens)-1]}
	for _, size := range sizes {
		for _, seqLen := range seqLens {
			c := predictor.CostCell{Size: size, SeqLen: seqLen}
			for range operators {
				c.Micros = append(c.Micros, math.Exp(8*r.Float64()))
				c.Work = append(c.Work, math.Exp(8*r.Float64()))
			}
			m.Costs = append(m.Costs, c)
		}
	}
	return m
}

// layers are random with the signs that the promises need.
func layers(r *rand.Rand, e *encoder, hidden ...int) []predictor.Layer {
	widths := append(append([]int{e.Width}, hidden...), 1)
	list := make([]predictor.Layer, len(widths)-1)
	for n := range list {
		l := predictor.Layer{Inputs: widths[n], Outputs: widths[n+1]}
		for o := range l.Outputs {
			for i := range l.Inputs {
				w := float32(r.NormFloat64()) / float32(math.Sqrt(float64(l.Inputs)))
				if sign := Sign(n, len(list), i, l.Inputs, o, l.Outputs, e.Growing); float32(sign)*w < 0 {
					w = -w
				}
				l.Weights = append(l.Weights, w)
			}
			l.Bias = append(l.Bias, float32(r.NormFloat64())/4)
		}
		list[n] = l
	}
	return list
}

// drawGroup returns a group that the model covers.
func drawGroup(m *Model, r *rand.Rand) models.Group {
	var g models.Group
	for _, i := range r.Perm(len(m.infos))[:1+r.IntN(min(len(m.infos), m.profile.Network.Spans))] {
		f := &m.profile.Network.Models[i]
		s := models.Span{Service: models.ServiceID(i), Size: 1 + r.IntN(f.MaxSize), SeqLen: r.IntN(f.MaxSeqLen + 1)}
		s.Start = r.IntN(f.Operators)
		s.End = s.Start + 1 + r.IntN(f.Operators-s.Start)
		g.Spans = append(g.Spans, s)
	}
	return g
}

// part removes operators of a group, or a span, and returns false if there is
// nothing to remove.
func part(g models.Group, r *rand.Rand) (models.Group, bool) {
	i := r.IntN(len(g.Spans))
	spans := append([]models.Span(nil), g.Spans...)
	s := &spans[i]
	switch {
	case len(spans) > 1 && r.IntN(4) == 0:
		spans[i] = spans[len(spans)-1]
		spans = spans[:len(spans)-1]
	case s.Len() == 1:
		return g, false
	case r.IntN(2) == 0:
		s.Start += 1 + r.IntN(s.Len()-1)
	default:
		s.End -= 1 + r.IntN(s.Len()-1)
	}
	return models.Group{Spans: spans}, true
}
