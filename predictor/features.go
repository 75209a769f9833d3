package predictor

import (
	"errors"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/models"
)

// The values of Features.Set, which names how a group is encoded as inputs of a network.
const (
	// FeaturesPaper is the encoding of Abacus, section 5.3: a bitmap of models, and four numbers
	// per slot.
	FeaturesPaper = "paper"
	// FeaturesModel has a block of inputs for each model and inputs for the cost of the group.
	FeaturesModel = "models"
)

// Limits of features.
const (
	// MaxSpans limits the spans of a group.
	MaxSpans         = 16
	MaxFeatureModels = 256
)

// Features describe how a network encodes groups of at most Spans spans. They are part of the
// predictor file.
type Features struct {
	Set    string         `json:"set"`
	Spans  int            `json:"spans"`
	Models []FeatureModel `json:"models"`
}

// FeatureModel is a model that a network was trained on. A span refers to it by its index, as its
// Service. MaxSize and MaxSeqLen are the largest batch and the longest sequence among the
// measured groups. MaxSeqLen is 0 if the model has no sequences.
type FeatureModel struct {
	Name      string     `json:"name"`
	Hash      string     `json:"hash,omitempty"`
	Operators int        `json:"operators"`
	MaxSize   int        `json:"max_size"`
	MaxSeqLen int        `json:"max_seq_len"`
	Costs     []CostCell `json:"costs,omitempty"`
}

// CostCell holds the cost of each operator of a model for one batch size and sequence length, in
// microseconds. Costs are measured, or inferred from groups. Micros is the isolated latency of an
// operator. Work is the time for which it saturates the device, so that nothing can overlap with
// it. Work is usually a fraction of Micros, but exceeds it where operators slow each other down.
type CostCell struct {
	Size   int       `json:"size"`
	SeqLen int       `json:"seq_len"`
	Micros []float64 `json:"micros"`
	Work   []float64 `json:"work"`
}

// Width returns the number of inputs.
func (f *Features) Width() int {
	if f.Set == FeaturesPaper {
		return len(f.Models) + paperSlot*f.Spans
	}
	width := groupInputs
	for i := range f.Models {
		width += f.Models[i].width()
	}
	return width
}

// Covers reports whether a group is within the range of training: its models are known and
// different, its operators exist, and it has no more spans, no larger batches and no longer
// sequences than the measured groups.
func (f *Features) Covers(g models.Group) bool {
	if len(g.Spans) == 0 || len(g.Spans) > f.Spans {
		return false
	}
	for i := range g.Spans {
		s := &g.Spans[i]
		if s.Service < 0 || int(s.Service) >= len(f.Models) {
			return false
		}
		m := &f.Models[s.Service]
		if s.Start < 0 || s.Start >= s.End || s.End > m.Operators || s.Size < 1 || s.Size > m.MaxSize || s.SeqLen < 0 || s.SeqLen > m.MaxSeqLen {
			return false
		}
		for j := range i {
			if g.Spans[j].Service == s.Service {
				return false
			}
		}
	}
	return true
}

// Validate returns an error unless the features can be encoded.
func (f *Features) Validate() error {
	switch {
	case f.Set != FeaturesPaper && f.Set != FeaturesModel:
		return fmt.Errorf("unknown set %q", f.Set)
	case f.Spans < 1 || f.Spans > MaxSpans:
		return fmt.Errorf("groups of %d spans; the limit is %d", f.Spans, MaxSpans)
	case len(f.Models) == 0 || len(f.Models) > MaxFeatureModels:
		return fmt.Errorf("%d models; the limit is %d", len(f.Models), MaxFeatureModels)
	}
	names := make(map[string]bool, len(f.Models))
	for i := range f.Models {
		m := &f.Models[i]
		if m.Name == "" || names[m.Name] {
			return fmt.Errorf("model %d is named %q, as another or not at all", i, m.Name)
		}
		names[m.Name] = true
		if err := m.validate(f.Set); err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	return nil
}

func (m *FeatureModel) validate(set string) error {
	switch {
	case m.Operators < 1 || m.Operators > maxOperators:
		return fmt.Errorf("%d operators", m.Operators)
	case m.MaxSize < 1 || m.MaxSize > MaxSize:
		return fmt.Errorf("batch size %d", m.MaxSize)
	case m.MaxSeqLen < 0 || m.MaxSeqLen > MaxSeqLen:
		return fmt.Errorf("sequence length %d", m.MaxSeqLen)
	case len(m.Costs) > MaxCells:
		return fmt.Errorf("%d cells of costs; the limit is %d", len(m.Costs), MaxCells)
	}
	for i := range m.Costs {
		c := &m.Costs[i]
		if c.Size < 1 || c.Size > MaxSize || c.SeqLen < 0 || c.SeqLen > MaxSeqLen || len(c.Micros) != m.Operators || len(c.Work) != m.Operators {
			return fmt.Errorf("a cell of size %d, sequence length %d, with costs of %d and work of %d operators for %d", c.Size, c.SeqLen, len(c.Micros), len(c.Work), m.Operators)
		}
		for o, micros := range c.Micros {
			// The negated comparison also rejects NaN.
			if !(micros > 0 && micros <= mostMicros && c.Work[o] >= 0 && c.Work[o] <= mostMicros) {
				return fmt.Errorf("operator %d costs %v µs, %v of work", o, micros, c.Work[o])
			}
		}
	}
	if set == FeaturesModel && NewCostGrid(m.Costs) == nil {
		return errors.New("its cells of costs do not make a grid, of every batch size at every sequence length")
	}
	return nil
}

// The inputs of FeaturesModel: a block for each model, zero for models that are not in the group,
// and then inputs for the group as a whole.
const (
	// blockInputs is the size of a block. A model with sequences has one more input.
	blockInputs = 8
	groupInputs = 4
)

// Encoder returns the function that encodes a group as inputs of a network. Training and serving
// share it, so that both see the same features (Abacus, section 5.3). The function sets the first
// [Features.Width] elements of inputs for a group that the features cover. It returns the time in
// microseconds to which the network's output is relative. The order of the spans has no effect.
//
// The features must be valid and must not change while the function is in use. The function does
// not allocate and is safe for concurrent use.
func (f *Features) Encoder() func(g models.Group, inputs []float32) (baseMicros float64) {
	return newEncoder(f).encode
}

// encoder holds what Encoder precomputes: the number of inputs and, for each model, the index of
// its first input and its cost grid.
type encoder struct {
	features *Features
	width    int
	blocks   []int
	costs    []*CostGrid
}

func newEncoder(f *Features) *encoder {
	e := &encoder{features: f, width: f.Width()}
	if f.Set == FeaturesPaper {
		return e
	}
	at := 0
	for i := range f.Models {
		e.blocks = append(e.blocks, at)
		e.costs = append(e.costs, NewCostGrid(f.Models[i].Costs))
		at += f.Models[i].width()
	}
	return e
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
	// The inputs of a span are relative to the base, as the output is.
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

// block sets the inputs of a span's model, except for those relative to the group. It returns the
// isolated latency and the work of the span in microseconds.
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
	// paperSlot is the number of inputs per slot.
	paperSlot = 4
	// paperBase is 1000 µs, because the paper's network predicts milliseconds.
	paperBase = 1000.0
)

// encodePaper sets the inputs of Abacus, section 5.3, figure 8: one bit per model, then the first
// operator, the last operator, the batch size and the sequence length of each span. Slots are in
// the order of the models, and unused ones are zero.
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
