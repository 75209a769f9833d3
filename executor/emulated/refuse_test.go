package emulated

import (
	"errors"
	"testing"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Queries that the emulated model does not take fail their span.
func TestBadQueries(t *testing.T) {
	r := startRig(t, quick)
	batch := models.BatchID(1)
	for name, change := range map[string]func(*executor.SpanRequest){
		"no input":  func(s *executor.SpanRequest) { s.Queries[0].Inputs = nil },
		"no shape":  func(s *executor.SpanRequest) { s.Queries[0].Inputs[0].Shape = nil },
		"too large": func(s *executor.SpanRequest) { s.Span.Size = 9 },
	} {
		batch++
		s := r.on(0, batch, 0, 1, 1)
		change(&s)
		r.run(1, s)
		if o := r.next().Spans[0]; o.Status != models.SpanFailed || !errors.Is(o.Err, wire.ErrInput) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if state, _ := r.State(0); state.InFlight != 0 {
		t.Errorf("%d in flight", state.InFlight)
	}
}
