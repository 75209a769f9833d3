package overlap

import (
	"math/bits"
	"slices"
	"sort"
)

// heap is a binary heap whose items know where they are, so that any of them
// can be taken out.
type heap[T any] struct {
	items  []T
	before func(a, b T) bool
	moved  func(item T, pos int) // called with the new position, -1 once outside; nil if no item needs to know
}

func (h *heap[T]) len() int { return len(h.items) }

// top returns the first item. The heap must not be empty.
func (h *heap[T]) top() T { return h.items[0] }

func (h *heap[T]) push(item T) {
	h.items = append(h.items, item)
	h.up(len(h.items) - 1)
}

func (h *heap[T]) pop() T { return h.remove(0) }

func (h *heap[T]) remove(pos int) T {
	item := h.items[pos]
	last := len(h.items) - 1
	moved := h.items[last]
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	if pos < last {
		h.items[pos] = moved
		h.fix(pos)
	}
	if h.moved != nil {
		h.moved(item, -1)
	}
	return item
}

// fix restores the order after the item at pos has changed.
func (h *heap[T]) fix(pos int) {
	if h.up(pos) == pos {
		h.down(pos)
	}
}

func (h *heap[T]) up(pos int) int {
	item := h.items[pos]
	for pos > 0 {
		parent := (pos - 1) / 2
		if !h.before(item, h.items[parent]) {
			break
		}
		h.set(pos, h.items[parent])
		pos = parent
	}
	h.set(pos, item)
	return pos
}

func (h *heap[T]) down(pos int) {
	item := h.items[pos]
	for {
		child := 2*pos + 1
		if child >= len(h.items) {
			break
		}
		if child+1 < len(h.items) && h.before(h.items[child+1], h.items[child]) {
			child++
		}
		if !h.before(h.items[child], item) {
			break
		}
		h.set(pos, h.items[child])
		pos = child
	}
	h.set(pos, item)
}

func (h *heap[T]) set(pos int, item T) {
	h.items[pos] = item
	if h.moved != nil {
		h.moved(item, pos)
	}
}

// bitset is a set of small numbers.
type bitset []uint64

// newBitset returns an empty set of numbers below n.
func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) set(i int)   { b[i/64] |= 1 << (i % 64) }
func (b bitset) clear(i int) { b[i/64] &^= 1 << (i % 64) }

func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

// without returns how many numbers are in the set that are not in another as large.
func (b bitset) without(o bitset) (n int) {
	for w := range b {
		n += bits.OnesCount64(b[w] &^ o[w])
	}
	return n
}

// next returns the least number in the set that is not below another, -1 if there is
// none.
func (b bitset) next(from int) int { return b.both(b, from) }

// both returns the least number in two sets that is not below another, -1 if there is
// none.
func (b bitset) both(o bitset, from int) int {
	for w := from / 64; w < len(b); w++ {
		word := b[w] & o[w]
		if w == from/64 {
			word &= ^uint64(0) << (from % 64)
		}
		if word != 0 {
			return 64*w + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// Limits of what a walk remembers.
const (
	walkLeast = 32  // items that it puts in order at once
	walkMost  = 512 // items that it remembers while the heap changes
)

// walk visits the items of a heap in order and leaves the heap as it is. It remembers
// those that it has visited, so that the next decision need not put them in order
// again: joined and left, or else forget, keep that true when the heap has changed.
type walk[T comparable] struct {
	over  *heap[T]
	order []T       // the first items of the heap
	at    int       // how many of them are passed
	next  heap[int] // positions of those that come next
}

func newWalk[T comparable](over *heap[T]) walk[T] {
	return walk[T]{over: over, next: heap[int]{
		before: func(a, b int) bool { return over.before(over.items[a], over.items[b]) },
	}}
}

// start goes to the first item.
func (w *walk[T]) start() { w.at = 0 }

// top returns the item that the walk is at. It is false at the end.
func (w *walk[T]) top() (item T, ok bool) {
	if w.at >= len(w.order) && !w.extend() {
		return item, false
	}
	return w.order[w.at], true
}

// pass goes on to the next item. The walk must not be at the end.
func (w *walk[T]) pass() { w.at++ }

// extend puts twice as many items in order as are remembered. It is false if these are
// all there are.
func (w *walk[T]) extend() bool {
	count := min(max(2*len(w.order), walkLeast), w.over.len())
	if count == len(w.order) {
		return false
	}
	w.order, w.next.items = w.order[:0], append(w.next.items[:0], 0)
	for len(w.order) < count {
		pos := w.next.top()
		w.order = append(w.order, w.over.items[pos])
		if child := 2*pos + 1; child < w.over.len() {
			w.next.items[0] = child
			w.next.down(0)
			if child+1 < w.over.len() {
				w.next.push(child + 1)
			}
		} else {
			w.next.pop()
		}
	}
	return true
}

// forget has the walk put all items in order again.
func (w *walk[T]) forget() { w.order = w.order[:0] }

// joined takes in that an item was pushed.
func (w *walk[T]) joined(item T) {
	at := w.place(item)
	if all := len(w.order) == w.over.len()-1; at < len(w.order) || all {
		w.order = slices.Insert(w.order, at, item)
	}
}

// left takes in that an item is about to be removed.
func (w *walk[T]) left(item T) {
	if at := w.place(item); at < len(w.order) && w.order[at] == item {
		w.order = slices.Delete(w.order, at, at+1)
	}
}

// place returns where an item is or belongs.
func (w *walk[T]) place(item T) int {
	w.order = w.order[:min(len(w.order), walkMost)]
	return sort.Search(len(w.order), func(k int) bool { return !w.over.before(w.order[k], item) })
}
