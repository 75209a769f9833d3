package residency

import "cmp"

// candidate is a model that may be evicted.
type candidate struct {
	id      int
	bytes   int64
	worth   float64
	density float64 // worth for each byte
}

// compare orders candidates by what is lost for each byte, and those that are equal in the same way each
// time.
func (c candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(c.density, other.density), cmp.Compare(c.id, other.id))
}

// candidates is a heap, with the candidate of least density first. A heap, because mostly a few of many
// candidates are needed.
type candidates []candidate

func (h candidates) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// pop removes the first candidate.
func (h *candidates) pop() candidate {
	list := *h
	first, last := list[0], len(list)-1
	list[0] = list[last]
	*h = list[:last]
	h.down(0)
	return first
}

// down restores the heap below i.
func (h candidates) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].compare(h[child]) < 0 {
			child++
		}
		if h[i].compare(h[child]) <= 0 {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
