package timeline

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Limits on the details of a round. Details beyond them are only counted.
const (
	maxQueries = 16 // named queries of a span

	// maxDropped is the number of dropped queries listed.
	maxDropped = 16
)

// Round is one round and the decision behind it. Times are since the daemon started, in
// nanoseconds in JSON.
type Round struct {
	Number uint64 `json:"round"`

	// Device is the name of the device in a pool.
	Device string        `json:"device,omitempty"`
	Start  time.Duration `json:"start_ns"`

	// End and Took are 0 while the round is running. Took is the measured time.
	End  time.Duration `json:"end_ns"`
	Took time.Duration `json:"took_ns"`

	// Late is the part of Took by which the host noticed the end late, on an emulated
	// device.
	Late      time.Duration `json:"late_ns,omitempty"`
	Predicted time.Duration `json:"predicted_ns"`

	// Bound is the p99 of the predicted time, which is compared with deadlines.
	Bound    time.Duration `json:"bound_ns"`
	Deadline time.Duration `json:"deadline_ns"`

	// Headroom is the time that the bound had to keep to, 0 if nothing depended on it.
	Headroom time.Duration `json:"headroom_ns"`

	// Solo is the time of the spans one after another, 0 if it was not computed.
	Solo time.Duration `json:"solo_ns"`

	// Planned is set if the round was chosen while the previous one ran. For is when it was
	// expected to start.
	Planned bool          `json:"planned"`
	For     time.Duration `json:"for_ns"`

	// Asked counts the predictions that were made to choose the round.
	Asked struct {
		Calls  int `json:"calls"`
		Groups int `json:"groups"`
	} `json:"asked"`

	Spans []Span `json:"spans"`

	// Candidates are sorted by urgency, the most urgent first.
	Candidates []candidate `json:"candidates"`
	Dropped    []work      `json:"dropped"`

	// More is the number of dropped queries that are not listed.
	More int `json:"dropped_more,omitempty"`
}

// Span is operators [Start, End) of a batch. Of is the number of operators of its model.
type Span struct {
	// Service is an index into the services of the page.
	Service int    `json:"service"`
	Batch   uint64 `json:"batch"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
	Of      int    `json:"of"`
	Size    int    `json:"size"`
	SeqLen  int    `json:"seq_len,omitempty"`
	Queries int    `json:"queries"`

	// IDs are those of the first queries.
	IDs []uint64 `json:"ids"`

	// Deadline is the latest deadline of the queries that still want it, 0 if it is not
	// known.
	Deadline time.Duration `json:"deadline_ns"`
	Took     time.Duration `json:"took_ns"`

	// Device is the part of Took by the device's own clock, 0 if it has none.
	Device time.Duration `json:"device_ns,omitempty"`

	// Status is "running" until the round has ended.
	Status string `json:"status"`
}

// candidate is work of one service that could have been in the group.
type candidate struct {
	work

	// Solo is the isolated latency of all its remaining operators, 0 if it is not known or
	// was not needed.
	Solo time.Duration `json:"solo_ns"`

	// Place is its position in the group, 0 if it is not in it.
	Place int `json:"place"`

	// End is where its span in the group ends.
	End   int   `json:"end"`
	Tried trial `json:"tried,omitzero"`
}

// trial is the group with all remaining operators of a candidate that was rejected, zero if
// there was none. Its bound had to keep to Headroom, and its predicted time had to be less
// than Apart, that of its parts one after another, where that was computed.
type trial struct {
	Predicted time.Duration `json:"predicted_ns"`
	Bound     time.Duration `json:"bound_ns"`

	// Headroom is 0 if nothing depended on it.
	Headroom time.Duration `json:"headroom_ns"`
	Apart    time.Duration `json:"apart_ns"`
}

// work is the most urgent work of one service before the round.
type work struct {
	// Service is an index into the services of the page.
	Service int `json:"service"`

	// Batch is 0 if the batch was still to be formed.
	Batch uint64 `json:"batch"`

	// Query is the most urgent query.
	Query uint64 `json:"query"`

	// Start is the next operator to run.
	Start    int           `json:"start"`
	Size     int           `json:"size"`
	SeqLen   int           `json:"seq_len,omitempty"`
	Deadline time.Duration `json:"deadline_ns"`
	Headroom time.Duration `json:"headroom_ns"`
}

// running is the status of a span until its round has ended.
const running = "running"

// begin writes a round into r and reuses its memory. Services are identified by their IDs.
func (r *Round) begin(from *overlap.Round, why *overlap.Explanation, services []models.Service) {
	*r = Round{
		Number: from.Number, Start: from.Start, Predicted: from.Predicted.Latency, Bound: from.Predicted.Bound,
		Headroom: why.Headroom, Solo: why.Solo, Planned: why.Planned, For: why.For,
		Spans: r.Spans[:0], Candidates: r.Candidates[:0], Dropped: r.Dropped[:0],
	}
	r.Asked.Calls, r.Asked.Groups = why.Asked.Calls, why.Asked.Groups
	for i := range why.Candidates {
		c := &why.Candidates[i]
		r.Candidates = append(r.Candidates, candidate{
			work: workOf(c), Solo: c.Solo.Latency, Place: c.Place, End: c.End,
			Tried: trial{c.Tried.Latency, c.Tried.Bound, c.Tried.Headroom, c.Tried.Apart},
		})
		if c.Place == 1 {
			r.Deadline = c.Deadline
		}
	}
	for i := range why.Dropped {
		if i == maxDropped {
			r.More = len(why.Dropped) - maxDropped
			break
		}
		d := &why.Dropped[i]
		r.Dropped = append(r.Dropped, workOf(d))
	}
	for i, s := range from.Group.Spans {
		r.addSpan(s, services[s.Service].Operators, from.Queries[i])
	}
}

// workOf converts a candidate of the scheduler.
func workOf(c *overlap.Candidate) work {
	return work{
		Service: int(c.Service), Batch: uint64(c.Batch), Query: uint64(c.Query), Start: c.Start,
		Size: c.Size, SeqLen: c.SeqLen, Deadline: c.Deadline, Headroom: c.Headroom,
	}
}

// addSpan appends a span and reuses the memory of an earlier one, if there is one.
func (r *Round) addSpan(s models.Span, operators int, queries []models.QueryID) {
	n := len(r.Spans)
	r.Spans = slices.Grow(r.Spans, 1)[:n+1]
	to := &r.Spans[n]
	*to = Span{
		Service: int(s.Service), Batch: uint64(s.Batch), Start: s.Start, End: s.End, Of: operators,
		Size: s.Size * s.Times(len(queries)), SeqLen: s.SeqLen, Queries: len(queries), IDs: to.IDs[:0], Status: running,
	}
	for _, id := range queries[:min(len(queries), maxQueries)] {
		to.IDs = append(to.IDs, uint64(id))
	}
	for i := range r.Candidates {
		if c := &r.Candidates[i]; c.Service == to.Service && c.Place > 0 {
			to.Deadline = c.Deadline
		}
	}
}

// services yields each reference to a service in the round. It is an ID at first, and an
// index into the lanes once the round is in the ring.
func (r *Round) services(yield func(*int) bool) {
	for i := range r.Spans {
		if !yield(&r.Spans[i].Service) {
			return
		}
	}
	for i := range r.Candidates {
		if !yield(&r.Candidates[i].Service) {
			return
		}
	}
	for i := range r.Dropped {
		if !yield(&r.Dropped[i].Service) {
			return
		}
	}
}

// finish records the outcome of the round.
func (r *Round) finish(now time.Duration, o *models.Outcome) {
	r.End, r.Took = now, o.Took
	for i := range o.Spans {
		if to := r.span(o.Spans[i].Span.Batch); to != nil {
			to.Took, to.Status = o.Spans[i].Took, o.Spans[i].Status.String()
		}
	}
}

// span returns the span of a batch, or nil.
func (r *Round) span(of models.BatchID) *Span {
	i := slices.IndexFunc(r.Spans, func(s Span) bool { return s.Batch == uint64(of) })
	if i < 0 {
		return nil
	}
	return &r.Spans[i]
}

// copyTo copies the round to another one and reuses its memory. The lists are never nil,
// because JSON would encode nil as null.
func (r *Round) copyTo(to *Round) {
	spans, candidates, dropped := to.Spans, to.Candidates, to.Dropped
	*to = *r
	to.Candidates, to.Dropped, to.Spans = refill(candidates, r.Candidates), refill(dropped, r.Dropped), refill(spans, r.Spans)
	for i := range to.Spans {
		to.Spans[i].IDs = append([]uint64{}, r.Spans[i].IDs...)
	}
}

// refill copies a list into the memory of another. The result is never nil.
func refill[T any](to, from []T) []T {
	if to == nil {
		to = []T{}
	}
	return append(to[:0], from...)
}
