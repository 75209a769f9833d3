package device

import (
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// An operator that takes something only with others beside it is given its part
// of that, and all together take what the model does.
func TestOperatorTimes(t *testing.T) {
	stairs := func(g models.Group) time.Duration {
		s := g.Spans[0]
		return []time.Duration{0, 5, 6, 10}[s.End] - []time.Duration{0, 3, 6, 10}[s.Start]
	}
	if got, want := OperatorTimes(stairs, models.Span{End: 3, Size: 1}), []int64{4, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	m, err := NewModel(random(1))
	if err != nil {
		t.Fatal(err)
	}
	for i, info := range m.Models() {
		sum, span := int64(0), models.Span{Service: models.ServiceID(i), End: info.Operators, Size: 4, SeqLen: 8}
		for _, n := range m.OperatorTimes(span) {
			sum += n
		}
		whole := m.Latency(models.Group{Spans: []models.Span{span}})
		if off := sum - int64(whole); off > int64(info.Operators) || off < -int64(info.Operators) {
			t.Errorf("%s: its operators take %d, it takes %d", info.Name, sum, whole)
		}
	}
}
