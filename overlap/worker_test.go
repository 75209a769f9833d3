package overlap

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

func TestLoad(t *testing.T) {
	s, err := New(Config{
		Services: []models.Service{{Name: "a", Operators: 1, QoSTarget: time.Second, QueueLimit: 4, MaxBatch: 4}},
		Policy:   "fcfs",
		Devices:  []Predictor{unknowing{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	model := models.Service{Name: "a", Operators: 7, QoSTarget: time.Second, QueueLimit: 4, MaxBatch: 1}
	if err := s.load(0, model); !errors.Is(err, ErrServiceBusy) {
		t.Fatalf("Load of a service that is up: %v", err)
	}
	s.down(0, 0, 0)
	if err := s.load(0, models.Service{ID: 3}); !errors.Is(err, ErrUnknownService) {
		t.Fatalf("Load of an unknown service: %v", err)
	}
	if err := s.load(0, models.Service{Name: "a", QoSTarget: time.Second, QueueLimit: 4}); err == nil {
		t.Fatal("Load of a model without operators succeeded")
	}
	if err := s.load(0, model); err != nil {
		t.Fatal(err)
	}
	s.up(0, 0, 0)
	for id := models.QueryID(1); id <= 2; id++ {
		if err := s.arrive(0, models.Query{ID: id, Size: 1, Deadline: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	r, ok := s.next(0)
	if !ok || r.Group.Spans[0].End != 7 || len(r.Queries[0]) != 1 {
		t.Fatalf("after Load: %v, %+v; want 7 operators of one query", ok, r)
	}
	if got := s.Members(r.Group.Spans[0].Batch); !slices.Equal(got, []models.QueryID{1}) {
		t.Fatalf("Members of the running batch: %v", got)
	}
	if got := s.Members(99); got != nil {
		t.Fatalf("Members of no batch: %v", got)
	}
	s.down(0, 0, 0)
	if err := s.load(0, model); !errors.Is(err, ErrServiceBusy) {
		t.Fatalf("Load while a batch runs: %v", err)
	}
}

// unknowing is a predictor that knows nothing.
type unknowing struct{}

func (unknowing) Predict(groups []models.Group, estimates []models.Estimate) {
	for i := range groups {
		estimates[i] = models.Estimate{}
	}
}
