package overlap_test

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// half predicts 1 ms an operator, and that spans which run together take half as long as one
// after another.
type half struct{}

func (half) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		var sum time.Duration
		for _, s := range g.Spans {
			sum += time.Duration(s.Len()) * time.Millisecond / time.Duration(len(g.Spans))
		}
		estimates[i] = models.Estimate{Latency: sum, Bound: sum}
	}
}

// Two queries of different services arrive, and one round runs both.
func Example() {
	const ms = time.Millisecond
	s, err := overlap.New(overlap.Config{Policy: "overlap", Devices: []overlap.Predictor{half{}}, Services: []models.Service{
		{ID: 0, Name: "image", Operators: 10, QoSTarget: 50 * ms, QueueLimit: 8, MaxBatch: 1},
		{ID: 1, Name: "text", Operators: 20, QoSTarget: 80 * ms, QueueLimit: 8, MaxBatch: 1},
	}})
	if err != nil {
		panic(err)
	}
	s.Step(0, &overlap.Event{Kind: overlap.Arrive, Query: models.Query{ID: 1, Service: 0, Size: 1, Deadline: 50 * ms}})
	s.Step(0, &overlap.Event{Kind: overlap.Arrive, Query: models.Query{ID: 2, Service: 1, Size: 1, Deadline: 80 * ms}})
	round := s.Ready(0).Round
	outcome := models.Outcome{Round: round.Number, Took: round.Predicted.Latency}
	for _, span := range round.Spans {
		fmt.Printf("service %d runs operators [%d, %d)\n", span.Service, span.Start, span.End)
		outcome.Spans = append(outcome.Spans, models.SpanOutcome{Span: span, Reached: span.End, Took: outcome.Took})
	}
	s.Advance(0) // plans the next round while this one runs
	s.Step(outcome.Took, &overlap.Event{Kind: overlap.Finish, Outcome: outcome})
	for _, a := range s.Ready(outcome.Took).Answers {
		fmt.Println("query", a.Query, a.Result, "at", a.At)
	}
	// Output:
	// service 0 runs operators [0, 10)
	// service 1 runs operators [0, 20)
	// query 1 finished at 15ms
	// query 2 finished at 15ms
}
