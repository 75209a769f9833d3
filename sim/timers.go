package sim

import "time"

// timer is something that happens at a time known before.
type timer struct {
	at   time.Duration
	kind timerKind
	seq  int // of those of one kind, so that the order is always the same

	query  int // of a client that leaves
	worker int // that dies or is back
}

// timerKind orders what happens at one instant.
type timerKind uint8

const (
	workerBack timerKind = iota
	workerDies
	clientLeaves
)

func (t *timer) before(o *timer) bool {
	switch {
	case t.at != o.at:
		return t.at < o.at
	case t.kind != o.kind:
		return t.kind < o.kind
	}
	return t.seq < o.seq
}

// timers is a binary heap.
type timers struct {
	items []timer
	seq   int
}

func (h *timers) push(t timer) {
	h.seq++
	t.seq = h.seq
	h.items = append(h.items, t)
	for i := len(h.items) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.items[i].before(&h.items[parent]) {
			return
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
}

func (h *timers) pop() timer {
	first, last := h.items[0], len(h.items)-1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && h.items[child+1].before(&h.items[child]) {
			child++
		}
		if !h.items[child].before(&h.items[i]) {
			return first
		}
		h.items[i], h.items[child] = h.items[child], h.items[i]
		i = child
	}
}
