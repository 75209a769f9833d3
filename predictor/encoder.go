package predictor

import (
	"math"

	"github.com/overlapd/overlapd/models"
)

// Inputs of the set "models": a block for each model, zero for those not in
// the group, then those of the group.
const (
	blockInputs = 8 // and one more for a model with sequences
	groupInputs = 4
)

// Encoder returns the function that turns groups into the inputs of a network,
// the one that training and serving share (Abacus, section 5.3). It sets as many
// inputs as the features have by Width to what the network sees of a group that
// the features cover, and returns the time in microseconds that the network's
// output is relative to. The order of the spans changes nothing. The function does
// not allocate and may be called concurrently, and the features must not change
// while it is in use. The error wraps [ErrFeatures].
func (f *Features) Encoder() (encode func(g models.Group, inputs []float32) (baseMicros float64), err error) {
	e, err := newEncoder(f)
	if err != nil {
		return nil, err
	}
	return e.encode, nil
}

// encoder holds what is calculated once from features: their number of inputs
// and, for each model, the position of its first input and its grid of costs.
type encoder struct {
	features *Features
	width    int
	blocks   []int
	costs    []*CostGrid
}

func newEncoder(f *Features) (*encoder, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	e := &encoder{features: f, width: f.Width()}
	if f.Set == FeaturesPaper {
		return e, nil
	}
	at := 0
	for i := range f.Models {
		e.blocks = append(e.blocks, at)
		e.costs = append(e.costs, NewCostGrid(f.Models[i].Costs))
		at += f.Models[i].width()
	}
	return e, nil
}

func (m *FeatureModel) width() int {
	if m.MaxSeqLen > 0 {
		return blockInputs + 1
	}
	return blockInputs
}

func (e *encoder) encode(g models.Group, inputs []float32) (baseMicros float64) {
	inputs = inputs[:e.width]
	clear(inputs)
	order := ModelOrder(g.Spans)
	if e.features.Set == FeaturesPaper {
		return e.encodePaper(g.Spans, &order, inputs)
	}
	return e.encodeModels(g.Spans, &order, inputs)
}

func (e *encoder) encodeModels(spans []models.Span, order *[MaxSpans]uint8, inputs []float32) float64 {
	var micros, works [MaxSpans]float64
	var total, longest, work float64
	for k := range spans {
		s := &spans[order[k]]
		micros[k], works[k] = e.block(s, inputs[e.blocks[s.Service]:])
		total += micros[k]
		work += works[k]
		longest = max(longest, micros[k])
	}
	base := Together(micros[:len(spans)], work)
	for k := range spans {
		b := inputs[e.blocks[spans[order[k]].Service]:]
		b[1] = float32(micros[k] / base)
		b[2] = float32(works[k] / base)
	}
	tail := inputs[e.width-groupInputs:]
	tail[0] = float32(math.Log(base / 1000))
	tail[1] = float32(total / base)
	tail[2] = float32(longest / base)
	tail[3] = float32(work / base)
	return base
}

// block sets the inputs of a span's model, but for those relative to the
// group, and returns what the span costs in microseconds.
func (e *encoder) block(s *models.Span, b []float32) (micros, work float64) {
	m := &e.features.Models[s.Service]
	c := e.costs[s.Service].At(s.Size, s.SeqLen)
	microsBefore, workBefore := c.before(s.Start)
	microsUpTo, workUpTo := c.before(s.End)
	_, workAll := c.before(m.Operators)
	b[0] = 1
	b[3] = float32(s.Start) / float32(m.Operators)
	b[4] = float32(s.End) / float32(m.Operators)
	if workAll > 0 {
		b[5] = float32(workBefore / workAll)
		b[6] = float32(workUpTo / workAll)
	}
	b[7] = float32(math.Log2(float64(s.Size)))
	if m.MaxSeqLen > 0 {
		b[8] = float32(math.Log2(float64(1 + s.SeqLen)))
	}
	return max(microsUpTo-microsBefore, minNanos/1e3), max(workUpTo-workBefore, 0)
}

const (
	paperSlot = 4      // inputs of a slot
	paperBase = 1000.0 // microseconds: the network gives milliseconds
)

// encodePaper sets the inputs of section 5.3, figure 8: a bit for each model,
// then first operator, last operator, batch size and sequence length of each
// span. Slots are in model order, and those without a span are zero.
func (e *encoder) encodePaper(spans []models.Span, order *[MaxSpans]uint8, inputs []float32) float64 {
	slots := inputs[len(e.features.Models):]
	for k := range spans {
		s := &spans[order[k]]
		inputs[s.Service] = 1
		slot := slots[k*paperSlot:]
		slot[0], slot[1], slot[2], slot[3] = float32(s.Start), float32(s.End), float32(s.Size), float32(s.SeqLen)
	}
	return paperBase
}
