package predictor

import (
	"cmp"
	"slices"
)

const (
	// settleAfter is how many observations a cell needs before it is used.
	// Until then it keeps the least, because the first runs of a shape pay
	// for memory and caches, and an estimate that is too high could make the
	// scheduler drop every query and so never be corrected.
	settleAfter = 3

	// weight is what one observation counts in the running estimate.
	weight = 1.0 / 8

	// outlier is by which factor an observation may exceed the estimate; one
	// that exceeds it by more counts as if it did by that.
	outlier = 2.0

	// minNanos is the least time of an operator. It keeps every time
	// positive, so that it can be scaled.
	minNanos = 1.0

	// faster is the ratio below which an observation is no noise: hiccups make
	// a span slower, never that much faster. The estimate then goes half the
	// way at once, because one that is too high drops queries for nothing.
	faster = 2.0 / 3

	maxNanos = float64(MaxTime)
)

// cell holds the solo times of every operator of a service for one batch size
// and sequence length.
type cell struct {
	size, seqLen int
	observations int
	nanos        []float64 // of each operator
	sums         []float64 // sums[i] is that of nanos[:i]
}

func newCell(size, seqLen, operators int) *cell {
	return &cell{
		size: size, seqLen: seqLen,
		nanos: make([]float64, operators),
		sums:  make([]float64, operators+1),
	}
}

func (c *cell) settled() bool { return c.observations >= settleAfter }

// span is at least minNanos even where the sums are too coarse for it.
func (c *cell) span(start, end int) float64 {
	return max(c.sums[end]-c.sums[start], minNanos)
}

func (c *cell) sum() {
	for i, n := range c.nanos {
		c.sums[i+1] = c.sums[i] + n
	}
}

// observe moves the operators of a span towards what the span took. Each
// keeps its fraction of the span.
func (c *cell) observe(start, end int, took float64) {
	ratio := took / c.span(start, end)
	switch {
	case !c.settled():
		ratio = min(ratio, 1)
	case ratio < faster:
		ratio = (1 + ratio) / 2
	default:
		ratio = 1 + weight*(min(ratio, outlier)-1)
	}
	c.scale(start, end, ratio)
	if c.observations < 1<<30 {
		c.observations++
	}
}

func (c *cell) scale(start, end int, ratio float64) {
	for i := start; i < end; i++ {
		c.nanos[i] = min(max(c.nanos[i]*ratio, minNanos), maxNanos)
	}
	c.sum()
}

// seed returns a cell from its first observation. What the operators take in
// proportion to each other is known from other cells, else taken as equal.
func (sv *soloService) seed(start, end, size, seqLen int, took float64) *cell {
	c := newCell(size, seqLen, sv.operators)
	for i := range c.nanos {
		c.nanos[i] = max(sv.estimate(i, i+1, size, seqLen), minNanos)
	}
	c.sum()
	c.scale(0, sv.operators, took/c.span(start, end))
	c.observations = 1
	return c
}

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

// around is the cells that the time of a batch is interpolated from.
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
