package overlap

// walk visits the items of a heap in order and leaves the heap as it is. The
// heap must not change meanwhile.
type walk[T any] struct {
	over *heap[T]
	next heap[int] // positions that are not passed, but whose parents are
}

func newWalk[T any](over *heap[T]) walk[T] {
	return walk[T]{over: over, next: heap[int]{
		before: func(a, b int) bool { return over.before(over.items[a], over.items[b]) },
		moved:  func(int, int) {},
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
	pos := w.next.pop()
	w.push(2*pos + 1)
	w.push(2*pos + 2)
}

func (w *walk[T]) push(pos int) {
	if pos < w.over.len() {
		w.next.push(pos)
	}
}
