package metrics

import (
	"sync/atomic"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Recorder is the listener that keeps a record of a scheduler goroutine.
type Recorder struct {
	record *record
	latest atomic.Pointer[record]
}

// newRecorder returns a Recorder that has seen nothing, of so many services.
func NewRecorder(services int) *Recorder { return &Recorder{record: newRecord(services)} }

// Latest returns a copy of the record, as old as the status that was published
// last, an empty one before the first. It may be called by any goroutine, and must
// not be changed.
func (r *Recorder) Latest() *record {
	if latest := r.latest.Load(); latest != nil {
		return latest
	}
	return newRecord(0)
}

// Observe implements [observe.Listener].
func (r *Recorder) Observe(e *observe.Event) {
	switch e.Kind {
	case observe.Woke:
		r.record.wake(e.At)
	case observe.Rested:
		r.record.rest(e.At)
	case observe.Dispatched:
		r.record.dispatch(groupOf(e))
	case observe.Ended:
		r.ended(e)
	case observe.Answered:
		if a := e.Answer; a.Result == overlap.Finished {
			r.record.answer(int(e.Series), finished{Latency: a.At - a.Started + a.Queue, Queue: a.Queue, Target: e.Target})
		}
	case observe.Added:
		r.record.setServices(int(e.Service.ID) + 1)
		r.record.clear(int(e.Service.ID))
	case observe.Inherited:
		r.record.fold(int(e.From), int(e.Series))
	case observe.Published:
		copied := newRecord(len(r.record.services))
		r.record.copyTo(copied)
		r.latest.Store(copied)
	}
}

// groupOf describes the group of a round. Its headroom is that of the first deadline
// in the group, not of others that wait.
func groupOf(e *observe.Event) sent {
	r := e.Round
	g := sent{Spans: len(r.Group.Spans), Predicted: r.Predicted.Latency, Bound: r.Predicted.Bound, Solo: e.Solo}
	for i := range e.Why.Candidates {
		c := &e.Why.Candidates[i]
		if left := c.Deadline - r.Start; c.Place > 0 && (!g.Urgent || left < g.Headroom) {
			g.Headroom, g.Urgent = left, true
		}
	}
	return g
}

func (r *Recorder) ended(e *observe.Event) {
	m := e.Measured
	if m == nil {
		return // it was not sent
	}
	whole := true
	for i := range m.Spans {
		whole = whole && m.Spans[i].Status == models.SpanDone
	}
	r.record.finish(outcome{Took: m.Took, Compared: m.Latency(), Whole: whole})
}
