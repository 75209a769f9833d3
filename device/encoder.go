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
	cells     *cells
	operators int
	first     int
}

// NewEncoder returns the encoder of models whose costs lie on whole grids.
func NewEncoder(list []predictor.FeatureModel) *Encoder {
	e := &Encoder{}
	for i := range list {
		c := newCells(list[i].Costs)
		e.models = append(e.models, encoded{c, list[i].Operators, e.width})
		e.grow(1+len(c.sizes)+len(c.seqLens), false)
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
	base := longest
	if len(spans) > 1 {
		base = together(micros[:len(spans)], max(longest, work), work)
	}
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
	var sizes, seqLens [2]weight
	sizes[0], sizes[1] = around(m.cells.sizes, s.Size)
	seqLens[0], seqLens[1] = around(m.cells.seqLens, s.SeqLen)
	b[0] = 1
	b = b[1:]
	for _, w := range sizes {
		b[w.at] += float32(w.part)
	}
	b = b[len(m.cells.sizes):]
	for _, w := range seqLens {
		b[w.at] += float32(w.part)
	}
	b = b[len(m.cells.seqLens):]
	micros, work = m.cells.span(s.Start, s.End, sizes, seqLens)
	b[0], b[1] = scale(micros), scale(work)
	b = b[costInputs:]
	for i := range sectionOf {
		from, to := i*m.operators, (i+1)*m.operators
		inside := min(s.End*sectionOf, to) - max(s.Start*sectionOf, from)
		b[i] = float32(max(inside, 0)) / float32(m.operators)
	}
	return micros, work
}

// together is the norm of 16 dimensions of what spans take alone and of all
// their work: the longest, with its corners rounded.
func together(micros []float64, top, work float64) float64 {
	sum := power16(work / top)
	for _, m := range micros {
		sum += power16(m / top)
	}
	return top * math.Sqrt(math.Sqrt(math.Sqrt(math.Sqrt(sum))))
}

func power16(x float64) float64 {
	x *= x
	x *= x
	x *= x
	return x * x
}
