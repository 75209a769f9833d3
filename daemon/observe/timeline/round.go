package timeline

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Limits of what is kept of one round. What is over them is counted.
const (
	maxQueries = 16 // named of one span
	maxDropped = 16
)

// Round is one round and the decision behind it. Times are since the daemon
// started; in JSON all of them are nanoseconds.
type Round struct {
	Number    uint64        `json:"round"`
	Device    string        `json:"device,omitempty"` // of a pool, by its name
	Start     time.Duration `json:"start_ns"`
	End       time.Duration `json:"end_ns"`            // 0 while it runs
	Took      time.Duration `json:"took_ns"`           // as measured, 0 while it runs
	Late      time.Duration `json:"late_ns,omitempty"` // the part of Took after it was over on an emulated device
	Predicted time.Duration `json:"predicted_ns"`
	Bound     time.Duration `json:"bound_ns"` // what 99 of 100 runs keep
	Deadline  time.Duration `json:"deadline_ns"`
	Headroom  time.Duration `json:"headroom_ns"` // what the group had to keep to, 0 if nothing depended on that
	Solo      time.Duration `json:"solo_ns"`     // its spans' time one after another, 0 if nobody asked
	Planned   bool          `json:"planned"`     // it was chosen while the round before it ran
	For       time.Duration `json:"for_ns"`      // when it was taken to start

	// Asked counts what the predictor was asked to choose the round.
	Asked struct {
		Calls  int `json:"calls"`
		Groups int `json:"groups"`
	} `json:"asked"`

	Spans      []Span      `json:"spans"`
	Candidates []candidate `json:"candidates"` // the most urgent first
	Dropped    []work      `json:"dropped"`
	More       int         `json:"dropped_more,omitempty"` // dropped and not listed
}

// Span is operators [Start, End) of a batch, of the Of that its model has.
type Span struct {
	Service  int           `json:"service"` // position among the services of a page
	Batch    uint64        `json:"batch"`
	Start    int           `json:"start"`
	End      int           `json:"end"`
	Of       int           `json:"of"`
	Size     int           `json:"size"`
	SeqLen   int           `json:"seq_len,omitempty"`
	Queries  int           `json:"queries"`
	IDs      []uint64      `json:"ids"`         // the first queries'
	Deadline time.Duration `json:"deadline_ns"` // the last one of the queries that want it, 0 if unknown
	Took     time.Duration `json:"took_ns"`
	Device   time.Duration `json:"device_ns,omitempty"` // the part of Took by the device's own clock; 0 if it has none
	Status   string        `json:"status"`              // "running" until the round has ended
}

// candidate is work of one service that could have been in the group.
type candidate struct {
	work
	Solo  time.Duration `json:"solo_ns"` // the time alone of all that was left of it, 0 if unknown or not asked
	Place int           `json:"place"`   // in the group, 0 if it is not in it
	End   int           `json:"end"`     // where its span in the group ends
	Tried trial         `json:"tried,omitzero"`
}

// trial is the group that a candidate was turned down in with all that was left of it,
// zero if there was none. Its bound had to keep to the headroom, and its predicted
// time, where that was asked for, had to be less than that of its parts one after
// another.
type trial struct {
	Predicted time.Duration `json:"predicted_ns"`
	Bound     time.Duration `json:"bound_ns"`
	Headroom  time.Duration `json:"headroom_ns"` // 0 if nothing depended on it
	Apart     time.Duration `json:"apart_ns"`
}

// work is the most urgent work of one service, before the round.
type work struct {
	Service  int           `json:"service"` // position among the services of a page
	Batch    uint64        `json:"batch"`   // 0 if it was to be formed
	Query    uint64        `json:"query"`   // the most urgent
	Start    int           `json:"start"`   // the operator to run next
	Size     int           `json:"size"`
	SeqLen   int           `json:"seq_len,omitempty"`
	Deadline time.Duration `json:"deadline_ns"`
	Headroom time.Duration `json:"headroom_ns"`
}

// running is the status of a span until its round has ended.
const running = "running"

// begin writes a round into the memory of r, with services by their ID.
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

func workOf(c *overlap.Candidate) work {
	return work{
		Service: int(c.Service), Batch: uint64(c.Batch), Query: uint64(c.Query), Start: c.Start,
		Size: c.Size, SeqLen: c.SeqLen, Deadline: c.Deadline, Headroom: c.Headroom,
	}
}

// addSpan appends a span, in the memory of one that was there before if there
// is one.
func (r *Round) addSpan(s models.Span, operators int, queries []models.QueryID) {
	n := len(r.Spans)
	r.Spans = slices.Grow(r.Spans, 1)[:n+1]
	to := &r.Spans[n]
	*to = Span{
		Service: int(s.Service), Batch: uint64(s.Batch), Start: s.Start, End: s.End, Of: operators,
		Size: s.Size, SeqLen: s.SeqLen, Queries: len(queries), IDs: to.IDs[:0], Status: running,
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

// services yields where the round names services: by their IDs, and by their positions
// on a page once it is in the ring.
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

// finish writes down how the round went.
func (r *Round) finish(now time.Duration, o *models.Outcome) {
	r.End, r.Took = now, o.Took
	for i := range o.Spans {
		if to := r.span(o.Spans[i].Span.Batch); to != nil {
			to.Took, to.Status = o.Spans[i].Took, o.Spans[i].Status.String()
		}
	}
}

// span returns that of a batch, nil if there is none.
func (r *Round) span(of models.BatchID) *Span {
	i := slices.IndexFunc(r.Spans, func(s Span) bool { return s.Batch == uint64(of) })
	if i < 0 {
		return nil
	}
	return &r.Spans[i]
}

// copyTo copies the round into the memory of another. Its lists are never nil.
func (r *Round) copyTo(to *Round) {
	spans, candidates, dropped := to.Spans, to.Candidates, to.Dropped
	*to = *r
	to.Candidates, to.Dropped, to.Spans = refill(candidates, r.Candidates), refill(dropped, r.Dropped), refill(spans, r.Spans)
	for i := range to.Spans {
		to.Spans[i].IDs = append([]uint64{}, r.Spans[i].IDs...)
	}
}

func refill[T any](to, from []T) []T {
	if to == nil {
		to = []T{}
	}
	return append(to[:0], from...)
}
