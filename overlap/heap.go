package overlap

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

// walk visits the items of a heap in order and leaves the heap as it is. The
// heap must not change meanwhile.
type walk[T any] struct {
	over *heap[T]
	next heap[int] // positions that are not passed, but whose parents are
}

func newWalk[T any](over *heap[T]) walk[T] {
	return walk[T]{over: over, next: heap[int]{
		before: func(a, b int) bool { return over.before(over.items[a], over.items[b]) },
	}}
}

// start goes to the first item.
func (w *walk[T]) start() {
	w.next.items = w.next.items[:0]
	w.push(0)
}

// top returns the item that the walk is at. It is false at the end.
func (w *walk[T]) top() (item T, ok bool) {
	if w.next.len() == 0 {
		return item, false
	}
	return w.over.items[w.next.top()], true
}

// pass goes on to the next item. The walk must not be at the end.
func (w *walk[T]) pass() {
	pos := w.next.top()
	if child := 2*pos + 1; child < w.over.len() {
		w.next.items[0] = child
		w.next.down(0)
		w.push(child + 1)
	} else {
		w.next.pop()
	}
}

func (w *walk[T]) push(pos int) {
	if pos < w.over.len() {
		w.next.push(pos)
	}
}
