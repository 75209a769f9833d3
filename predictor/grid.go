package predictor

import (
	"math"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Beside returns the lower of the two knots that a value lies between on an
// ascending axis of at least one, and what the next knot counts for it; the lower
// counts for the rest of 1. Beyond the outermost knot it is that one alone: what is
// smaller than anything measured may take no less, and what is larger is not
// guessed.
func Beside(axis []int, value int) (low int, high float64) {
	i := 0
	for i < len(axis) && axis[i] < value {
		i++
	}
	switch {
	case i == len(axis):
		return i - 1, 0
	case i == 0 || axis[i] == value:
		return i, 0
	}
	return i - 1, float64(value-axis[i-1]) / float64(axis[i]-axis[i-1])
}

// CostGrid holds what the operators of a model cost, by sequence length and
// batch size, as sums that make the cost of any span a difference. Between its
// cells it interpolates, along the sequence length and along the batch size. It
// never changes and may be used concurrently.
type CostGrid struct {
	seqLens []int
	planes  []costPlane
}

// costPlane holds the cells of one sequence length.
type costPlane struct {
	sizes []int
	cells []costSums
}

// costSums is a cell: micros[i] and work[i] are the sums over the operators
// before i.
type costSums struct {
	micros, work []float64
}

// NewCostGrid returns the grid of cells, of which there is one at least and no
// two are of one size and sequence length.
func NewCostGrid(cells []CostCell) *CostGrid {
	g := &CostGrid{}
	for i := range cells {
		c := &cells[i]
		q, found := slices.BinarySearch(g.seqLens, c.SeqLen)
		if !found {
			g.seqLens = slices.Insert(g.seqLens, q, c.SeqLen)
			g.planes = slices.Insert(g.planes, q, costPlane{})
		}
		p := &g.planes[q]
		b, _ := slices.BinarySearch(p.sizes, c.Size)
		p.sizes = slices.Insert(p.sizes, b, c.Size)
		p.cells = slices.Insert(p.cells, b, costSums{prefix(c.Micros), prefix(c.Work)})
	}
	return g
}

func prefix(values []float64) []float64 {
	sums := make([]float64, len(values)+1)
	for i, v := range values {
		sums[i+1] = sums[i] + v
	}
	return sums
}

// Axes returns the batch sizes and sequence lengths of the cells, ascending,
// and whether there is a cell for each pair of them. The caller must not change
// them.
func (g *CostGrid) Axes() (sizes, seqLens []int, whole bool) {
	sizes, whole = g.planes[0].sizes, true
	for i := range g.planes {
		if !slices.Equal(g.planes[i].sizes, sizes) {
			sizes, whole = slices.Concat(sizes, g.planes[i].sizes), false
		}
	}
	if !whole {
		slices.Sort(sizes)
		sizes = slices.Compact(sizes)
	}
	return sizes, g.seqLens, whole
}

// costs are the up to four cells of a grid that a batch lies between, and the
// weight of each in the interpolation.
type costs struct {
	cells  [4]*costSums
	weight [4]float64
	n      int
}

// At returns the costs of a batch, from which those of any of its spans follow.
// It does not allocate.
func (g *CostGrid) At(size, seqLen int) (c costs) {
	q, high := Beside(g.seqLens, seqLen)
	c.add(&g.planes[q], size, 1-high)
	if high > 0 {
		c.add(&g.planes[q+1], size, high)
	}
	return c
}

func (c *costs) add(p *costPlane, size int, weight float64) {
	b, high := Beside(p.sizes, size)
	c.cells[c.n], c.weight[c.n] = &p.cells[b], weight*(1-high)
	c.n++
	if high > 0 {
		c.cells[c.n], c.weight[c.n] = &p.cells[b+1], weight*high
		c.n++
	}
}

// Span returns what operators [start, end) take alone, and how much of that is
// work, in microseconds.
func (c *costs) Span(start, end int) (micros, work float64) {
	for k := range c.n {
		s := c.cells[k]
		micros += c.weight[k] * (s.micros[end] - s.micros[start])
		work += c.weight[k] * (s.work[end] - s.work[start])
	}
	return micros, work
}

// before returns the costs of the operators before i.
func (c *costs) before(i int) (micros, work float64) {
	for k := range c.n {
		micros += c.weight[k] * c.cells[k].micros[i]
		work += c.weight[k] * c.cells[k].work[i]
	}
	return micros, work
}

// Together returns about how long spans take that run at the same time, of
// what each takes alone and all their work: as long as the longest of them, or
// as their work keeps the device busy, whichever is more. The corner between
// the two is rounded: it is the norm of 16 dimensions. One span takes what it
// takes.
func Together(micros []float64, work float64) float64 {
	if len(micros) == 1 {
		return micros[0]
	}
	top := work
	for _, m := range micros {
		if m > top {
			top = m
		}
	}
	sum := Power16(work / top)
	for _, m := range micros {
		sum += Power16(m / top)
	}
	return top * math.Sqrt(math.Sqrt(math.Sqrt(math.Sqrt(sum))))
}

// Power16 returns the sixteenth power of a number: the slope of the logarithm of
// [Together] by that of one of its terms is that of the term over the norm.
func Power16(x float64) float64 {
	x *= x
	x *= x
	x *= x
	return x * x
}

// ModelOrder returns the positions of spans by their models, of which there are
// MaxSpans at most. What a group is said to take must not depend on the order in
// which a scheduler names its spans, and rounding depends on the order of sums.
func ModelOrder(spans []models.Span) (order [MaxSpans]uint8) {
	for i := range spans {
		j := i
		for ; j > 0 && spans[order[j-1]].Service > spans[i].Service; j-- {
			order[j] = order[j-1]
		}
		order[j] = uint8(i)
	}
	return order
}
