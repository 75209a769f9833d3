package device

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// OperatorTimes returns the isolated latency of each operator of a whole model in nanoseconds, as
// profiling on the device would measure it for a predictor's table: in the batches of a span, on its
// share.
//
// A device knows only spans, and a span may take more than the sum of its parts. Each operator
// is therefore assigned the mean of two differences: what it adds as the last operator of a
// span from the beginning, and what it adds as the first of a span to the end. The sum over all
// operators then equals the latency of the whole model.
func OperatorTimes(latency func(models.Group) time.Duration, whole models.Span) []int64 {
	spans := []models.Span{whole}
	took := func(start, end int) int64 {
		if start == end {
			return 0
		}
		spans[0].Start, spans[0].End = start, end
		return int64(latency(models.Group{Spans: spans}))
	}
	nanos := make([]int64, whole.End)
	before, after := int64(0), took(0, whole.End)
	for i := range nanos {
		upTo, from := took(0, i+1), took(i+1, whole.End)
		nanos[i] = max((upTo-before+after-from)/2, 0)
		before, after = upTo, from
	}
	return nanos
}

// OperatorTimes returns, and caches, the result of the function of that name for a model of the
// device. The caller must not modify it.
func (m *Model) OperatorTimes(whole models.Span) []int64 {
	key := batchOf{int(whole.Service), whole.Size, whole.SeqLen, whole.Share}
	times, known := m.alone[key]
	if !known {
		times = OperatorTimes(m.Latency, whole)
		m.alone[key] = times
	}
	return times
}
