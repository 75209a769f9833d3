package overlap

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// affine predicts batches that take grow for each query and base besides.
type affine struct{ grow, base time.Duration }

func (a *affine) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		took := time.Duration(0)
		for _, s := range g.Spans {
			took += a.base + time.Duration(s.Size)*a.grow
		}
		estimates[i] = models.Estimate{Latency: took, Bound: took}
	}
}

// believe has a scheduler explore nothing: who would be late by the estimate is dropped.
func believe(s *Scheduler) {
	for _, sv := range s.backlog.services {
		for i := range sv.replicas {
			sv.replicas[i].exploration.Until = forever
		}
	}
}

// A device that is too slow for a query leaves it to a fast one, though that is busy
// and it is free. What no device can do in time is dropped.
func TestSlowDeviceLeavesQueries(t *testing.T) {
	fast, slow := &affine{base: 10 * time.Millisecond}, &affine{base: 100 * time.Millisecond}
	for _, policy := range []string{"fcfs", "edf", "clockwork", "abacus", "overlap"} {
		s, err := New(Config{
			Policy: policy, Devices: []Predictor{slow, fast},
			Services: []models.Service{{Name: "a", Operators: 1, QoSTarget: time.Second, QueueLimit: 100}},
		})
		if err != nil {
			t.Fatal(err)
		}
		believe(s)
		for id, due := range []time.Duration{50, 30, 8} {
			if err := s.arrive(0, models.Query{ID: models.QueryID(id + 1), Size: 1, Deadline: due * time.Millisecond}); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Duration(0)
		for range 2 {
			r, ok := s.next(now)
			if !ok || r.Device != 1 {
				t.Fatalf("%s: %v, a round of device %d, want the fast one", policy, ok, r.Device)
			}
			if more, ok := s.next(now); ok {
				t.Fatalf("%s: the slow device runs %v", policy, more.Queries)
			}
			now += 10 * time.Millisecond
			if err := s.finish(now, models.Outcome{Round: r.Number, Device: 1, Spans: []models.SpanOutcome{{Span: r.Spans[0], Reached: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		answers := s.backlog.answers.take()
		if len(answers) != 3 || answers[0].Query != 3 || answers[0].Result != Dropped || answers[1].Result != Finished || answers[2].Result != Finished {
			t.Errorf("%s: %+v", policy, answers)
		}
	}
}
