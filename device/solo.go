package device

import (
	"cmp"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// newFactors compares the solo times of a model with those that alone returns for
// the whole model: by how much the one differs from the other, on a grid of sequence
// lengths and batch sizes, as the cost of its only operator. All spans of a batch
// that run alone take so much more or less; what they do beside others was
// measured of groups. A batch size and sequence length of the grid that was not
// given is as the nearest that was. Without any solo times there is no grid.
func newFactors(given []SoloTime, alone func(size, seqLen int) float64) *predictor.CostGrid {
	if len(given) == 0 {
		return nil
	}
	var sizes, seqLens []int
	for i := range given {
		sizes = append(sizes, given[i].Size)
		seqLens = append(seqLens, given[i].SeqLen)
	}
	slices.Sort(sizes)
	slices.Sort(seqLens)
	sizes, seqLens = slices.Compact(sizes), slices.Compact(seqLens) // once: it clears what is left over
	var cells []predictor.CostCell
	for _, seqLen := range seqLens {
		for _, size := range sizes {
			s := slices.MinFunc(given, func(a, b SoloTime) int {
				return cmp.Compare(predictor.Apart(size, seqLen, a.Size, a.SeqLen), predictor.Apart(size, seqLen, b.Size, b.SeqLen))
			})
			cells = append(cells, predictor.CostCell{Size: size, SeqLen: seqLen,
				Micros: []float64{s.Micros / alone(s.Size, s.SeqLen)}, Work: []float64{0}})
		}
	}
	return predictor.NewCostGrid(cells)
}

// setSolo takes the solo times of all models.
func (m *Model) setSolo(given []SoloTime) {
	byModel := make([][]SoloTime, len(m.infos))
	for _, s := range given {
		i := m.Index(s.Model)
		byModel[i] = append(byModel[i], s)
	}
	for i, given := range byModel {
		m.solo[i] = newFactors(given, func(size, seqLen int) float64 {
			m.spans[0] = models.Span{Service: models.ServiceID(i), End: m.infos[i].Operators, Size: size, SeqLen: seqLen}
			return m.most(m.spans[:1])
		})
	}
}

// OperatorTimes returns what each operator of a model takes alone, in
// nanoseconds: what a profile of the device would measure, for the table of solo
// times of whoever predicts. A device knows spans only, and a span may take more
// than its parts; so an operator is given the mean of what it adds as the last
// of a span from the beginning and as the first of one to the end, and all of
// them together take what the whole model does.
func OperatorTimes(latency func(models.Group) time.Duration, model, operators, size, seqLen int) []int64 {
	spans := make([]models.Span, 1)
	took := func(start, end int) int64 {
		if start == end {
			return 0
		}
		spans[0] = models.Span{Service: models.ServiceID(model), Start: start, End: end, Size: size, SeqLen: seqLen}
		return int64(latency(models.Group{Spans: spans}))
	}
	nanos := make([]int64, operators)
	before, after := int64(0), took(0, operators)
	for i := range nanos {
		upTo, from := took(0, i+1), took(i+1, operators)
		nanos[i] = max((upTo-before+after-from)/2, 0)
		before, after = upTo, from
	}
	return nanos
}

// OperatorTimes is the function of that name for a model of the device, which
// remembers what it found. The caller must not change the result.
func (m *Model) OperatorTimes(model, size, seqLen int) []int64 {
	key := batchOf{model, size, seqLen}
	times, known := m.alone[key]
	if !known {
		times = OperatorTimes(m.Latency, model, m.infos[model].Operators, size, seqLen)
		m.alone[key] = times
	}
	return times
}
