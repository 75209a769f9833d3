package device

import (
	"math"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// Inputs of a network. Those that count operators never fall when there are
// more of them; the others say which batches there are.
const (
	costInputs  = 2 // of each model
	sectionOf   = 6 // sections of each model, by operators
	groupInputs = 4

	// leastMicros is a time that counts for little. Inputs are logarithms of
	// how much longer than that something takes.
	leastMicros = 100
)

// Encoder turns groups into the inputs of a network, in making a device and in
// asking it. It never changes and may be used concurrently.
type Encoder struct {
	models  []encoded
	width   int
	growing []bool // by input
}

// encoded is a model, and where its inputs begin.
type encoded struct {
	costs          *predictor.CostGrid
	sizes, seqLens []int
	operators      int
	first          int
}

// NewEncoder returns the encoder of models whose costs lie on whole grids.
func NewEncoder(list []predictor.FeatureModel) *Encoder {
	e := &Encoder{}
	for i := range list {
		costs := predictor.NewCostGrid(list[i].Costs)
		sizes, seqLens, _ := costs.Axes()
		e.models = append(e.models, encoded{costs, sizes, seqLens, list[i].Operators, e.width})
		e.grow(1+len(sizes)+len(seqLens), false)
		e.grow(costInputs+sectionOf, true)
	}
	e.grow(groupInputs, true)
	return e
}

func (e *Encoder) grow(inputs int, growing bool) {
	for range inputs {
		e.growing = append(e.growing, growing)
	}
	e.width += inputs
}

// Width returns the number of inputs.
func (e *Encoder) Width() int { return e.width }

// Growing tells of each input whether it counts operators. The caller must not
// change it.
func (e *Encoder) Growing() []bool { return e.growing }

// Encode sets the inputs, of which there are Width, to what the network sees
// of spans, and returns the time in microseconds that its output is relative
// to. It does not allocate.
func (e *Encoder) Encode(spans []models.Span, inputs []float32) (baseMicros float64) {
	inputs = inputs[:e.width]
	clear(inputs)
	var micros [predictor.MaxSpans]float64
	var total, longest, work float64
	for i := range spans {
		m, w := e.models[spans[i].Service].encode(&spans[i], inputs)
		micros[i] = m
		total += m
		work += w
		longest = max(longest, m)
	}
	base := predictor.Together(micros[:len(spans)], work)
	tail := inputs[e.width-groupInputs:]
	tail[0] = scale(base)
	tail[1] = scale(total)
	tail[2] = scale(longest)
	tail[3] = scale(work)
	return leastMicros * math.Exp(baseExponent*math.Log(base/leastMicros))
}

// baseExponent is how latency grows with the base where the network says
// nothing.
const baseExponent = 0.7

// scale is zero for no time, and about a logarithm.
func scale(micros float64) float32 { return float32(math.Log1p(micros / leastMicros)) }

func (m *encoded) encode(s *models.Span, inputs []float32) (micros, work float64) {
	b := inputs[m.first:]
	b[0] = 1
	b = b[1:]
	for _, k := range predictor.Around(m.sizes, s.Size) {
		b[k.At] += float32(k.Weight)
	}
	b = b[len(m.sizes):]
	for _, k := range predictor.Around(m.seqLens, s.SeqLen) {
		b[k.At] += float32(k.Weight)
	}
	b = b[len(m.seqLens):]
	var costs predictor.Costs
	m.costs.At(s.Size, s.SeqLen, &costs)
	micros, work = costs.Span(s.Start, s.End)
	b[0], b[1] = scale(micros), scale(work)
	b = b[costInputs:]
	for i := range sectionOf {
		from, to := i*m.operators, (i+1)*m.operators
		inside := min(s.End*sectionOf, to) - max(s.Start*sectionOf, from)
		b[i] = float32(max(inside, 0)) / float32(m.operators)
	}
	return micros, work
}
