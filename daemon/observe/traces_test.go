package observe

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// While no query is traced, no event allocates anything.
func TestTracingOffAllocatesNothing(t *testing.T) {
	traces := NewTraces(time.Now(), []string{"fake"}, []string{""})
	round := &overlap.Round{Number: 1, Group: models.Group{Spans: make([]models.Span, 1)}, Queries: [][]models.QueryID{{1}}}
	events := []Event{
		{Kind: Accepted, Call: &query.Call{}}, {Kind: Dispatched, Round: round},
		{Kind: Ended, Outcome: &models.Outcome{Round: 1}}, {Kind: Answered, Answer: &overlap.Answer{Query: 1}},
	}
	if n := testing.AllocsPerRun(100, func() {
		for i := range events {
			traces.Observe(&events[i])
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
