package overlap

import (
	"math/bits"

	"github.com/overlapd/overlapd/models"
)

// index finds a query by its ID: a hash table with linear probing. Unlike a
// map it never allocates while queries come and go at a constant number.
type index struct {
	slots []*query // a power of two, at most half full
	count int
}

const indexSlots = 64 // at first

func (x *index) home(id models.QueryID) int {
	const golden = 0x9e3779b97f4a7c15
	return int((uint64(id) * golden) >> (64 - bits.Len(uint(len(x.slots)-1))))
}

func (x *index) next(slot int) int { return (slot + 1) & (len(x.slots) - 1) }

func (x *index) get(id models.QueryID) *query {
	if x.count == 0 {
		return nil
	}
	for slot := x.home(id); x.slots[slot] != nil; slot = x.next(slot) {
		if x.slots[slot].ID == id {
			return x.slots[slot]
		}
	}
	return nil
}

// put adds a query whose ID is not in the index.
func (x *index) put(q *query) {
	if 2*(x.count+1) > len(x.slots) {
		old := x.slots
		x.slots = make([]*query, max(indexSlots, 2*len(old)))
		for _, o := range old {
			if o != nil {
				x.place(o)
			}
		}
	}
	x.place(q)
	x.count++
}

func (x *index) place(q *query) {
	slot := x.home(q.ID)
	for x.slots[slot] != nil {
		slot = x.next(slot)
	}
	x.slots[slot] = q
}

// remove takes out a query that is in the index. Queries after the hole move
// back into it, where that does not put them before their home.
func (x *index) remove(id models.QueryID) {
	hole := x.home(id)
	for x.slots[hole].ID != id {
		hole = x.next(hole)
	}
	mask := len(x.slots) - 1
	for slot := x.next(hole); x.slots[slot] != nil; slot = x.next(slot) {
		home := x.home(x.slots[slot].ID)
		if (slot-home)&mask >= (slot-hole)&mask {
			x.slots[hole] = x.slots[slot]
			hole = slot
		}
	}
	x.slots[hole] = nil
	x.count--
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
	*b = batch{service: sv, members: b.members[:0], pausedPos: -1, expiryPos: -1}
	return b
}

func (p *pool) putQuery(q *query) { p.queries = append(p.queries, q) }
func (p *pool) putBatch(b *batch) { p.batches = append(p.batches, b) }
