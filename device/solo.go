package device

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

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
