package predictor

import (
	"cmp"
	"slices"
)

// find returns where the cell of this size and sequence length is, or belongs.
func (sv *soloService) find(size, seqLen int) (int, bool) {
	return slices.BinarySearchFunc(sv.cells, cell{size: size, seqLen: seqLen}, func(c *cell, want cell) int {
		return cmp.Or(cmp.Compare(c.seqLen, want.seqLen), cmp.Compare(c.size, want.size))
	})
}

// cell returns the cell of exactly this size and sequence length, or nil.
func (sv *soloService) cell(size, seqLen int) *cell {
	if i, ok := sv.find(size, seqLen); ok {
		return sv.cells[i]
	}
	return nil
}

func (sv *soloService) insert(c *cell) *cell {
	sv.asked = around{}
	i, _ := sv.find(c.size, c.seqLen)
	sv.cells = slices.Insert(sv.cells, i, c)
	return c
}

// around is the cells that the time of a batch is told from.
type around struct {
	size, seqLen int
	below, above *cell // the same if it is that of the batch, nil if there is none
}

// around returns the cells around a batch. It remembers the last, since a
// scheduler asks about one batch many times.
func (sv *soloService) around(size, seqLen int) *around {
	if a := &sv.asked; a.size == size && a.seqLen == seqLen {
		return a
	}
	a := around{size: size, seqLen: seqLen}
	if c := sv.cell(size, seqLen); c != nil && c.settled() {
		a.below, a.above = c, c
	} else {
		a.below, a.above = sv.neighbours(size, seqLen)
	}
	sv.asked = a
	return &sv.asked
}

// estimate returns the time of operators [start, end) in nanoseconds, or 0 if
// no cell has settled.
func (sv *soloService) estimate(start, end, size, seqLen int) float64 {
	a := sv.around(size, seqLen)
	below, above := a.below, a.above
	switch {
	case below == nil && above == nil:
		return 0
	case above == nil:
		return below.span(start, end) / below.proportion(size, seqLen)
	case below == nil || below == above:
		return above.span(start, end) / above.proportion(size, seqLen)
	}
	low := below.span(start, end) / below.proportion(below.size, seqLen)
	high := above.span(start, end) / above.proportion(above.size, seqLen)
	return low + (high-low)*float64(size-below.size)/float64(above.size-below.size)
}

// neighbours returns the settled cells of the nearest sequence length that
// are the nearest in size, at most and at least the given one; nil where there
// is none. Of two sequence lengths equally near it takes the longer.
func (sv *soloService) neighbours(size, seqLen int) (below, above *cell) {
	best := -1
	for _, c := range sv.cells {
		if !c.settled() {
			continue
		}
		if d := distance(c.seqLen, seqLen); best < 0 || d < distance(best, seqLen) || d == distance(best, seqLen) && c.seqLen != best {
			best, below, above = c.seqLen, nil, nil
		}
		if c.seqLen != best {
			continue
		}
		if c.size <= size {
			below = c // they are sorted by size
		}
		if c.size >= size && above == nil {
			above = c
		}
	}
	return below, above
}

// nearest returns the cell, settled or not, that is nearest in sequence
// length, then in size. There must be one.
func (sv *soloService) nearest(size, seqLen int) *cell {
	return slices.MinFunc(sv.cells, func(a, b *cell) int {
		return cmp.Or(
			cmp.Compare(distance(a.seqLen, seqLen), distance(b.seqLen, seqLen)),
			cmp.Compare(distance(a.size, size), distance(b.size, size)))
	})
}

// proportion returns what a batch of the cell's shape takes for each unit of
// time that the given one takes, if time grew in proportion to both.
func (c *cell) proportion(size, seqLen int) float64 {
	p := float64(c.size) / float64(size)
	if seqLen > 0 && c.seqLen > 0 {
		p *= float64(c.seqLen) / float64(seqLen)
	}
	return p
}

func distance(a, b int) int { return max(a-b, b-a) }
