package overlap

import (
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/reserve"
)

// query is an accepted query until it is answered.
type query struct {
	queryState
	postponed uint64 // the last triage that did so
	batch     *batch // nil while it waits in the queue of its service
	queuePos  int    // in the queue of its service
	expiryPos int    // in Scheduler.waiting
}

// queryState is what a snapshot holds of a query.
type queryState struct {
	models.Query `json:"Query"`
	Rank         rank
	Takes        takes `json:",omitzero"`
	Retries      int
	Apart        bool   `json:",omitempty"` // it runs in no batch with others any more
	Part         uint64 `json:",omitempty"` // of a batch that failed or was lost: it is merged with nobody else
	Cancelled    bool
	Answered     bool `json:",omitempty"` // though its batch, an overrun, still uses its tensors
}

// takes is what a query was predicted to take by itself when it was queued, 0 where nobody asked.
type takes struct {
	Alone time.Duration // on the share of a device on which it takes least of it and is in time
	Full  time.Duration `json:",omitempty"` // of the largest batch of such queries there, 0 if it is one by itself
	Least time.Duration `json:",omitempty"` // on the fastest share
	Share int           `json:",omitempty"` // of Alone and Full
}

// suspect reports whether the query was in a batch that failed or was lost. If it was the
// cause, it takes no others with it than those that were there: no batch waits for more to
// join it.
func (q *query) suspect() bool { return q.Apart || q.Part > 0 }

// mergesWith reports whether the query may be in a batch with another, but for its size and
// its deadline.
func (q *query) mergesWith(head *query) bool {
	return q.Shape == head.Shape && q.SeqLen == head.SeqLen && q.Rank.Filler == head.Rank.Filler &&
		q.Part == head.Part && !q.Apart && !head.Apart
}

// halved puts the k-th of n suspects into its half of them, of the two that begin with an
// ID. One that is a half by itself runs in no batch with others.
func (q *query) halved(id models.BatchID, k, n int) {
	part, of := 2*uint64(id), (n+1)/2
	if k >= of {
		part, of = part+1, n-of
	}
	q.Part, q.Apart = part, of == 1
}

// span returns the operators that the query would run on its own.
func (q *query) span(operators int) models.Span {
	return models.Span{Service: q.Service, End: operators, Size: q.Size, SeqLen: q.SeqLen}
}

// badQuery reports whether a query has an impossible size, sequence length or
// priority.
func badQuery(m *models.Query) bool { return m.Size < 1 || m.SeqLen < 0 || m.Priority < 0 }

// rank is the place of a query or a batch in the order in which they run. It
// is total: no two queries have the same ID. Snapshots hold it as it is.
type rank struct {
	// Filler is set if the service was best effort when the query arrived: it runs
	// after all that is not.
	Filler bool
	// Level is the priority, with 0 moved behind the numbered ones. It is 0 under a policy that
	// sheds load: there a priority protects a query from being postponed, and the deadline alone
	// decides the order.
	Level int
	// Key is given by the policy.
	Key     time.Duration
	Arrival time.Duration
	ID      models.QueryID
	// Priority is the same as Level under every policy, and takes no part in the order. That of a
	// batch is the highest of its members.
	Priority int
}

// level returns a number for a priority that grows as the priority falls.
func level(priority int) int {
	if priority == 0 {
		return math.MaxInt
	}
	return priority
}

func (r *rank) before(o *rank) bool {
	switch {
	case r.Filler != o.Filler:
		return o.Filler
	case r.Level != o.Level:
		return r.Level < o.Level
	case r.Key != o.Key:
		return r.Key < o.Key
	case r.Arrival != o.Arrival:
		return r.Arrival < o.Arrival
	}
	return r.ID < o.ID
}

// batch is one or more queries that run as one tensor or, in back-to-back execution, one after
// another.
type batch struct {
	id        models.BatchID
	service   *service
	device    *device
	members   []*query // in gather order
	postponed uint64   // the last triage that did so
	running   bool
	pausedPos int // in replica.paused
	expiryPos int // in Scheduler.paused
	batchState
}

// batchState is what a snapshot holds of a batch, besides what it consists of.
type batchState struct {
	Next int // the operator to run next
	// Size is the sum over the members or, in back-to-back execution, the size of each.
	Size     int
	SeqLen   int
	Rank     rank          // the rank of its most urgent member that is not cancelled
	Deadline time.Duration // the latest of its members that are not cancelled
	Started  time.Duration
	Run      time.Duration
	Explores bool    `json:",omitempty"` // it runs although it is predicted to be late
	Overrun  overrun `json:",omitzero"`

	// Way is that of a batch of a pipeline.
	reserve.Way
	Reserved bool    `json:",omitempty"` // its first span has not started yet
	Transit  transit `json:",omitempty"`
}

// overrun is a span that has overrun.
type overrun struct {
	End   int // before which operator it ends, 0 if there is none
	Share int `json:",omitempty"` // of the device, that it has
}

// replica returns where the batch is held.
func (b *batch) replica() *replica { return &b.service.replicas[b.device.index] }

func (b *batch) held() Held { return Held{b.service.ID, b.id, b.device.index} }

// wanted reports whether any member is not cancelled.
func (b *batch) wanted() bool {
	for _, q := range b.members {
		if !q.Cancelled {
			return true
		}
	}
	return false
}

// rest returns the span of all operators that are left, or left in its stage.
func (b *batch) rest() models.Span { return b.span(b.end()) }

// end returns the operator that the batch stops before on the device that it is on or
// moves to.
func (b *batch) end() int {
	if len(b.Legs) > 0 {
		return b.At().End
	}
	return b.service.Operators
}

// from returns the device from which the rest of the way of a batch begins.
func (b *batch) from() int {
	if b.Transit == settled {
		return b.At().Device
	}
	return b.device.index
}

// move returns what Moves has of a batch.
func (b *batch) move() Move {
	return Move{Held: b.held(), To: b.At().Device, Operator: b.Next, Size: b.Size}
}

// span returns the operators up to end.
func (b *batch) span(end int) models.Span {
	return models.Span{
		Service: b.service.ID, Batch: b.id, Start: b.Next, End: end,
		Size: b.Size, SeqLen: b.SeqLen,
	}
}

// add makes q the last member of the batch.
func (b *batch) add(q *query) {
	q.batch = b
	b.members = append(b.members, q)
	b.Size += q.Size
	b.Deadline = max(b.Deadline, q.Deadline)
}

// pool keeps the records of answered queries and ended batches for use by
// later ones.
type pool struct {
	queries []*query
	batches []*batch
}

// poolChunk is how many records are made at once.
const poolChunk = 64

func (p *pool) query() *query {
	if len(p.queries) == 0 {
		chunk := make([]query, poolChunk)
		for i := range chunk {
			p.queries = append(p.queries, &chunk[i])
		}
	}
	last := len(p.queries) - 1
	q := p.queries[last]
	p.queries = p.queries[:last]
	*q = query{queuePos: -1, expiryPos: -1}
	return q
}

func (p *pool) batch(sv *service) *batch {
	if len(p.batches) == 0 {
		p.batches = append(p.batches, new(batch))
	}
	last := len(p.batches) - 1
	b := p.batches[last]
	p.batches = p.batches[:last]
	*b = batch{service: sv, members: b.members[:0], pausedPos: -1, expiryPos: -1, batchState: batchState{Way: reserve.Way{Legs: b.Legs[:0]}}}
	return b
}

func (p *pool) putQuery(q *query) { p.queries = append(p.queries, q) }
func (p *pool) putBatch(b *batch) { p.batches = append(p.batches, b) }
