package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Round is one group to run. Its slices belong to the scheduler and are valid
// until the next call of Next.
type Round struct {
	Number    uint64        // counts from 1
	Start     time.Duration // when it was given out
	Group     models.Group
	Predicted models.Estimate
	Planned   bool // it was chosen by Plan

	queries [][]models.QueryID
}

// Queries returns the queries in the batch of span i, in the order in which
// their tensors are gathered. Where the span starts at operator 0 the worker
// gathers them; in later spans the batch is the same.
func (r Round) Queries(i int) []models.QueryID { return r.queries[i] }

// Outcome tells how a round went.
type Outcome struct {
	Round uint64
	Took  time.Duration
	Spans []SpanOutcome // one for each span of the group, in any order
}

// SpanOutcome tells how one span of a round went.
type SpanOutcome struct {
	Batch   models.BatchID
	Status  Status
	Reached int // the next operator to run; the span's End unless it was stopped
	Took    time.Duration
}

// Status tells how a span ended.
type Status uint8

// The ways a span ends.
const (
	SpanDone    Status = iota // it ran to its end
	SpanStopped               // it was stopped before operator Reached; at 0 its queries queue again
	SpanLost                  // the worker died, and its intermediates with it
	SpanFailed                // the model gave an error
)

func (s Status) String() string {
	return [...]string{"done", "stopped", "lost", "failed"}[s]
}

// fits reports whether the outcome is possible for the span.
func (o SpanOutcome) fits(s models.Span) bool {
	switch o.Status {
	case SpanDone:
		return o.Reached == s.End
	case SpanStopped:
		return o.Reached >= s.Start && o.Reached <= s.End
	case SpanLost, SpanFailed:
		return true
	}
	return false
}

// Release names a paused batch that will not run on. Its worker may free the
// intermediates, and must take no harm if it holds none.
type Release struct {
	Service models.ServiceID
	Batch   models.BatchID
}

// span returns the outcome of a span of the batch. If there is none that is
// possible, the span counts as failed.
func (o *Outcome) span(b *batch, span models.Span) (so SpanOutcome, ok bool) {
	for _, so := range o.Spans {
		if so.Batch == b.id && so.fits(span) {
			return so, true
		}
	}
	return SpanOutcome{Batch: b.id, Status: SpanFailed}, false
}

// open begins a round without spans.
func (s *Scheduler) open(predicted models.Estimate, planned bool) {
	s.busy = true
	s.round.Start, s.round.Predicted, s.round.Planned = s.now, predicted, planned
	s.metrics.Rounds++
	s.running = s.running[:0]
	s.round.Number++
	s.round.Group.Spans = s.round.Group.Spans[:0]
	s.round.queries = s.round.queries[:0]
}

// start adds the operators up to end of a batch to the round.
func (s *Scheduler) start(b *batch, end int) {
	if b.id == 0 {
		s.lastID++
		b.id, b.started = s.lastID, s.now
		b.service.metrics.Batches++
		if n := len(b.members); n > 1 {
			b.service.metrics.Merged += uint64(n)
		}
	} else {
		s.unpause(b)
	}
	b.running = true
	s.running = append(s.running, b)
	s.round.Group.Spans = append(s.round.Group.Spans, b.span(end))
	n := len(s.round.queries)
	if n < cap(s.round.queries) {
		s.round.queries = s.round.queries[:n+1]
	} else {
		s.round.queries = append(s.round.queries, nil)
	}
	ids := s.round.queries[n][:0]
	for _, q := range b.members {
		ids = append(ids, q.ID)
	}
	s.round.queries[n] = ids
}

// Finish tells how the round that runs has gone, and frees the device. A span
// whose worker was lost sends its queries back into the queue, as long as
// they can still finish and have retries left. Tell Down before it, or Next
// may choose that service again.
func (s *Scheduler) Finish(now time.Duration, o Outcome) error {
	s.clock(now)
	if !s.busy || o.Round != s.round.Number {
		return ErrUnknownRound
	}
	var err error
	s.busy = false
	s.metrics.Busy += max(o.Took, 0)
	for i, b := range s.running {
		so, ok := o.span(b, s.round.Group.Spans[i])
		if !ok {
			err = ErrBadOutcome
		}
		b.running = false
		b.run += max(so.Took, 0)
		s.ran(b, so)
		s.running[i] = nil
	}
	s.running = s.running[:0]
	return err
}
