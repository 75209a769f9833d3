package overlap

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

// Waiting tells of the queries in the queues, and not of those that run.
func TestWaiting(t *testing.T) {
	config := goodConfig(2)
	config.Services[0].MaxBatch = 1
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, w ...Waiting) {
		t.Helper()
		if diff := cmp.Diff(w, s.Waiting(nil)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	want("idle", Waiting{}, Waiting{})
	for i, arrival := range []time.Duration{3, 1, 2} {
		q := models.Query{ID: models.QueryID(i + 1), Service: 0, Size: 1, Arrival: arrival, Deadline: time.Hour}
		if err := s.arrive(5, q); err != nil {
			t.Fatal(err)
		}
	}
	want("three wait", Waiting{Oldest: 1}, Waiting{})
	if _, ok := s.next(5); !ok {
		t.Fatal("nothing runs")
	}
	want("the first runs", Waiting{Oldest: 2}, Waiting{})
}

// What the last triage has postponed is told, and what one before it has is not.
func TestWaitingPostponed(t *testing.T) {
	sv := newService(models.Service{Operators: 1}, 1)
	for i, triage := range []uint64{7, 6, 7, 0} {
		sv.queue.push(&query{queryState: queryState{Query: models.Query{ID: models.QueryID(i + 1)}}, postponed: triage})
	}
	if w := sv.waiting(7); w.Postponed != 2 {
		t.Errorf("%d are postponed", w.Postponed)
	}
	if w := sv.waiting(0); w.Postponed != 0 {
		t.Errorf("%d are postponed before there was a triage", w.Postponed)
	}
}
