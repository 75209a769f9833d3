package emulated

import (
	"errors"
	"testing"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Rounds that cannot be meant are refused, and have no outcome.
func TestBadRounds(t *testing.T) {
	r := startRig(t, quick)
	outside := r.on(0, 1, 0, 1, 1)
	outside.Queries[0].Inputs[0].Offset = 1 << 16
	for name, c := range map[string]struct {
		spans []executor.SpanRequest
		want  error
	}{
		"none":            {nil, executor.ErrBadSpan},
		"unknown service": {[]executor.SpanRequest{{Span: models.Span{Service: 3, End: 1}}}, executor.ErrUnknownService},
		"twice":           {[]executor.SpanRequest{r.on(0, 1, 0, 1, 1), r.on(0, 2, 0, 1, 1)}, executor.ErrBadSpan},
		"empty span":      {[]executor.SpanRequest{r.on(0, 1, 3, 3, 1)}, executor.ErrBadSpan},
		"negative":        {[]executor.SpanRequest{r.on(0, 1, -1, 3, 1)}, executor.ErrBadSpan},
		"no queries":      {[]executor.SpanRequest{{Span: models.Span{End: 1, Size: 1}}}, executor.ErrBadSpan},
		"outside":         {[]executor.SpanRequest{outside}, executor.ErrBadSpan},
	} {
		if err := r.Run(1, c.spans); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.State(3); !errors.Is(err, executor.ErrUnknownService) {
		t.Errorf("%v", err)
	}
	batch := models.BatchID(1)
	for name, change := range map[string]func(*executor.SpanRequest){
		"too far":   func(s *executor.SpanRequest) { s.Span.End = operators + 1 },
		"no input":  func(s *executor.SpanRequest) { s.Queries[0].Inputs = nil },
		"no shape":  func(s *executor.SpanRequest) { s.Queries[0].Inputs[0].Shape = nil },
		"too large": func(s *executor.SpanRequest) { s.Span.Size = 9 },
	} {
		batch++
		s := r.on(0, batch, 0, 1, 1)
		change(&s)
		r.run(1, s)
		if o := r.next().Spans[0]; o.Status != models.SpanFailed || !errors.Is(o.Err, executor.ErrBadSpan) && !errors.Is(o.Err, wire.ErrInput) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if state, _ := r.State(0); state.InFlight != 0 {
		t.Errorf("%d in flight", state.InFlight)
	}
}
