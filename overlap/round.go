package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Round is one group to run. Its slices belong to the scheduler and are valid
// until the next call of Next.
type Round struct {
	Number uint64 // counts from 1
	models.Group
	Start     time.Duration // when it was given out
	Predicted models.Estimate
	Planned   bool // it was chosen by Plan

	// Queries are those in the batch of each span, in the order in which their
	// tensors are gathered. Where the span starts at operator 0 the worker
	// gathers them; in later spans the batch is the same.
	Queries [][]models.QueryID
}

// clone returns a copy that shares no memory with the round.
func (r Round) clone() Round {
	r.Spans, r.Queries = slices.Clone(r.Spans), slices.Clone(r.Queries)
	for i, ids := range r.Queries {
		r.Queries[i] = slices.Clone(ids)
	}
	return r
}

// Release names a paused batch that will not run on. Its worker may free the
// intermediates, and must take no harm if it holds none.
type Release struct {
	Service models.ServiceID
	Batch   models.BatchID
}

// outcomeOf returns the outcome of a span of the batch. If there is none that is
// possible, the span counts as failed.
func outcomeOf(o *models.Outcome, b *batch, span models.Span) (so models.SpanOutcome, ok bool) {
	for _, so := range o.Spans {
		switch so.Status {
		case models.SpanDone:
			ok = so.Reached == span.End
		case models.SpanStopped:
			ok = so.Reached >= span.Start && so.Reached <= span.End
		default:
			ok = so.Status >= models.SpanLost && so.Status <= models.SpanCrashed || so.Status == models.SpanOverrun && b.Overrun == 0
		}
		if ok && so.Span.Batch == b.id {
			return so, true
		}
	}
	return models.SpanOutcome{Span: span, Status: models.SpanFailed}, false
}

// flight is the round that runs, or else the last one that ran.
type flight struct {
	busy    bool
	round   Round
	running []*batch // the batch of each span, none once the round is over
	lastID  models.BatchID
}

// open begins a round without spans.
func (f *flight) open(now time.Duration, predicted models.Estimate, planned bool) {
	f.busy = true
	f.running = f.running[:0]
	r := &f.round
	r.Number++
	r.Start, r.Predicted, r.Planned = now, predicted, planned
	r.Group.Spans, r.Queries = r.Group.Spans[:0], r.Queries[:0]
}

// start adds the operators up to end of a batch to the round. A batch that
// starts gets its ID.
func (f *flight) start(b *batch, end int) {
	if b.id == 0 {
		f.lastID++
		b.id, b.Started = f.lastID, f.round.Start
	}
	b.running = true
	f.running = append(f.running, b)
	r := &f.round
	r.Group.Spans = append(r.Group.Spans, b.span(end))
	n := len(r.Queries)
	if n < cap(r.Queries) {
		r.Queries = r.Queries[:n+1] // its memory is used again
	} else {
		r.Queries = append(r.Queries, nil)
	}
	ids := r.Queries[n][:0]
	for _, q := range b.members {
		ids = append(ids, q.ID)
	}
	r.Queries[n] = ids
}

// runs reports whether a batch of the service is in the round that runs.
func (f *flight) runs(sv *service) bool {
	return slices.ContainsFunc(f.running, func(b *batch) bool { return b.service == sv })
}

// Members returns the queries of a batch that is in the round that runs, in the
// order in which they were gathered, and nil for any other batch. The slice is
// valid until the next call of Next.
func (f *flight) Members(id models.BatchID) []models.QueryID {
	for i, b := range f.running {
		if b != nil && b.id == id {
			return f.round.Queries[i]
		}
	}
	return nil
}
