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

// Encoder turns groups into the inputs of a network: the one function that
// training and serving share. It never changes and may be used concurrently.
type Encoder struct {
	features *Features
	width    int
	blocks   []int // where the inputs of each model begin
	costs    []costs
}

// NewEncoder returns an encoder, or an error that wraps [ErrFeatures]. The
// features must not change while it is in use.
func NewEncoder(f *Features) (*Encoder, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	e := &Encoder{features: f, width: f.Width()}
	if f.Set == FeaturesPaper {
		return e, nil
	}
	at := 0
	for i := range f.Models {
		e.blocks = append(e.blocks, at)
		e.costs = append(e.costs, newCosts(f.Models[i].Costs))
		at += f.Models[i].width()
	}
	return e, nil
}

// Width returns the number of inputs.
func (e *Encoder) Width() int { return e.width }

// Covers reports whether a group is of the kind that the network was trained
// on: known models, each at most once, with operators that they have, and
// neither more spans, larger batches nor longer sequences than among the rows.
func (e *Encoder) Covers(g models.Group) bool {
	if len(g.Spans) == 0 || len(g.Spans) > e.features.Spans {
		return false
	}
	for i := range g.Spans {
		s := &g.Spans[i]
		if s.Service < 0 || int(s.Service) >= len(e.features.Models) || !e.features.Models[s.Service].covers(s) {
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

func (m *FeatureModel) covers(s *models.Span) bool {
	return s.Start >= 0 && s.Start < s.End && s.End <= m.Operators &&
		s.Size >= 1 && s.Size <= m.MaxSize && s.SeqLen >= 0 && s.SeqLen <= m.MaxSeqLen
}

func (m *FeatureModel) width() int {
	if m.MaxSeqLen > 0 {
		return blockInputs + 1
	}
	return blockInputs
}

// Encode sets the inputs, of which there are Width, to what the network sees
// of a group that the encoder covers, and returns the time in microseconds
// that the network's output is relative to. The order of the spans changes
// nothing. It does not allocate.
func (e *Encoder) Encode(g models.Group, inputs []float32) (baseMicros float64) {
	inputs = inputs[:e.width]
	clear(inputs)
	order := inModelOrder(g.Spans)
	if e.features.Set == FeaturesPaper {
		return e.encodePaper(g.Spans, &order, inputs)
	}
	return e.encodeModels(g.Spans, &order, inputs)
}

// inModelOrder returns the positions of the spans by their models. Sums are
// taken in this order too, since rounding depends on it.
func inModelOrder(spans []models.Span) (order [MaxSpans]uint8) {
	for i := range spans {
		j := i
		for ; j > 0 && spans[order[j-1]].Service > spans[i].Service; j-- {
			order[j] = order[j-1]
		}
		order[j] = uint8(i)
	}
	return order
}

// spanCost is what the span of one model costs, in microseconds.
type spanCost struct {
	micros, work float64
}

func (e *Encoder) encodeModels(spans []models.Span, order *[MaxSpans]uint8, inputs []float32) float64 {
	var costs [MaxSpans]spanCost
	var total, longest, work float64
	for k := range spans {
		s := &spans[order[k]]
		c := e.block(s, inputs[e.blocks[s.Service]:])
		costs[k] = c
		total += c.micros
		work += c.work
		longest = max(longest, c.micros)
	}
	base := together(costs[:len(spans)], longest, work)
	for k := range spans {
		b := inputs[e.blocks[spans[order[k]].Service]:]
		b[1] = float32(costs[k].micros / base)
		b[2] = float32(costs[k].work / base)
	}
	tail := inputs[e.width-groupInputs:]
	tail[0] = float32(math.Log(base / 1000))
	tail[1] = float32(total / base)
	tail[2] = float32(longest / base)
	tail[3] = float32(work / base)
	return base
}

// block sets the inputs of a span's model, but for those relative to the
// group.
func (e *Encoder) block(s *models.Span, b []float32) spanCost {
	m := &e.features.Models[s.Service]
	var at mix
	e.costs[s.Service].at(s.Size, s.SeqLen, &at)
	micros, work := at.before(s.Start)
	microsEnd, workEnd := at.before(s.End)
	_, workAll := at.before(m.Operators)
	b[0] = 1
	b[3] = float32(s.Start) / float32(m.Operators)
	b[4] = float32(s.End) / float32(m.Operators)
	if workAll > 0 {
		b[5] = float32(work / workAll)
		b[6] = float32(workEnd / workAll)
	}
	b[7] = float32(math.Log2(float64(s.Size)))
	if m.MaxSeqLen > 0 {
		b[8] = float32(math.Log2(float64(1 + s.SeqLen)))
	}
	return spanCost{max(microsEnd-micros, minNanos/1e3), max(workEnd-work, 0)}
}

// together returns about how long spans take that run at the same time: as
// long as the longest of them alone, or as all their work keeps the device
// busy, whichever is more. The corner between them is rounded: it is the norm
// of that many dimensions.
func together(costs []spanCost, longest, work float64) float64 {
	if len(costs) == 1 {
		return costs[0].micros
	}
	top := max(longest, work)
	sum := power16(work / top)
	for _, c := range costs {
		sum += power16(c.micros / top)
	}
	return top * math.Sqrt(math.Sqrt(math.Sqrt(math.Sqrt(sum))))
}

func power16(x float64) float64 {
	x *= x
	x *= x
	x *= x
	return x * x
}
