package overlap

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Ever more urgent queries each pause the batch before them, until as many are
// paused as may be.
func TestPausedBatchesAreBounded(t *testing.T) {
	s := newScheduler(goodConfig(1), alone{})
	var last models.Span
	for i := range MaxPaused + 3 {
		q := models.Query{ID: models.QueryID(i + 1), Size: 4, Deadline: time.Hour - time.Duration(i)}
		if err := s.arrive(0, q); err != nil {
			t.Fatal(err)
		}
		r, ok := s.next(0)
		if !ok {
			t.Fatal("nothing to run")
		}
		last = r.Group.Spans[0]
		if i < MaxPaused && last.Start != 0 {
			t.Fatalf("query %d does not start its batch: %+v", q.ID, last)
		}
		s.Advance(0) // a batch that goes on counts as paused
		if err := s.finish(0, models.Outcome{Round: r.Number, Spans: []models.SpanOutcome{{Span: models.Span{Batch: last.Batch}, Reached: last.End}}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if last.Batch != MaxPaused || last.Start != 3 {
		t.Errorf("with the limit reached %+v runs, want the most urgent paused batch", last)
	}
	if m := s.Metrics().Services[0]; m.Paused != MaxPaused || m.Queued != 3 {
		t.Errorf("%d batches paused and %d queries queued", m.Paused, m.Queued)
	}
}

// A policy may choose nothing although there is work.
func TestNoChoice(t *testing.T) {
	s := newScheduler(goodConfig(1), idle{})
	if err := s.arrive(0, models.Query{ID: 1, Size: 1, Deadline: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if r, ok := s.next(0); ok {
		t.Errorf("round %+v", r)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	if m := s.Metrics().Services[0]; m.Queued != 1 {
		t.Errorf("%d queries queued", m.Queued)
	}
}

// Of an overrun it is known whether those who wait are all that its batch began with.
func TestUnanswered(t *testing.T) {
	s := newScheduler(goodConfig(1), overlap{})
	for id := range models.QueryID(2) {
		if err := s.arrive(0, models.Query{ID: id + 1, Size: 1, Deadline: time.Duration(id+1) * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	r, _ := s.next(0)
	batch := r.Group.Spans[0].Batch
	if waiting, all := s.Unanswered(batch); waiting != nil || all {
		t.Errorf("%v of a batch that is no overrun, %t", waiting, all)
	}
	if err := s.finish(1, models.Outcome{Round: r.Number, Spans: []models.SpanOutcome{{Span: models.Span{Batch: batch}, Status: models.SpanOverrun}}}); err != nil {
		t.Fatal(err)
	}
	for now, want := range []int{2, 1} {
		s.next(time.Duration(now) * time.Second)
		if waiting, all := s.Unanswered(batch); len(waiting) != want || waiting[want-1] != 2 || all != (want == 2) {
			t.Errorf("after %d s %v wait, all %t", now, waiting, all)
		}
	}
}
