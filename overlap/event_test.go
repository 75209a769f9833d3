package overlap

import (
	"errors"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Ready returns what has ended before it decides, and says when to ask again.
func TestReadyAnswersFirst(t *testing.T) {
	s := newScheduler(goodConfig(1), fcfs{})
	step := func(now time.Duration, e Event) {
		t.Helper()
		if err := s.Step(now, &e); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.Ready(0); r.Wake != Never || r.Round != nil {
		t.Fatalf("nothing has happened: %+v", r)
	}
	for id := range models.QueryID(3) {
		step(0, Event{Kind: Arrive, Query: models.Query{ID: id + 1, Size: 3, Deadline: time.Hour}})
	}
	r := s.Ready(0)
	if r.Round == nil || r.Wake != 0 || len(r.Answers) > 0 {
		t.Fatalf("want a round: %+v", r)
	}
	first := *r.Round
	if r := s.Ready(0); r.Round != nil || r.Wake != time.Hour {
		t.Fatalf("want the first deadline: %+v", r)
	}
	s.Advance(0)
	if !s.Planned() {
		t.Fatal("no plan")
	}
	step(1, Event{Kind: Cancel, Query: models.Query{ID: first.Queries[0][0]}})
	if r := s.Ready(1); len(r.Stops) != 1 || r.Stops[0].Batch != first.Spans[0].Batch || r.Wake != 1 || s.Planned() {
		t.Fatalf("want a batch to stop: %+v", r)
	}
	end := first.Predicted.Latency
	step(end, Event{Kind: Finish, Outcome: models.Outcome{Round: first.Number, Spans: []models.SpanOutcome{
		{Span: first.Spans[0], Reached: first.Spans[0].End},
	}}})
	if r := s.Ready(end); len(r.Answers) == 0 || r.Round != nil || r.Wake != end {
		t.Fatalf("want answers only: %+v", r)
	}
	if r := s.Ready(end); r.Round == nil || r.Round.Number != first.Number+1 {
		t.Fatalf("want the next round: %+v", r)
	}
	if r := s.Ready(2 * time.Hour); len(r.Answers) != 1 || r.Answers[0].Reason != ReasonDeadlinePassed {
		t.Fatalf("want a drop: %+v", r)
	}
	if err := s.Step(0, &Event{}); !errors.Is(err, ErrUnknownEvent) || (Event{}).Kind.String() != "unknown" {
		t.Errorf("an event without a kind: %v", err)
	}
}
