package overlap

import (
	"math/bits"

	"github.com/overlapd/overlapd/models"
)

// index finds a query by its ID: a hash table with linear probing. A Go map costs a
// query 3 to 10 % of all that the sequential policies do for it (BenchmarkQuery).
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
