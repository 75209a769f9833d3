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

// Apart returns how far one batch is from another: by the factors between their sizes
// and between their sequence lengths.
func Apart(size, seqLen, otherSize, otherSeqLen int) float64 {
	return math.Abs(math.Log(float64(otherSize)/float64(size))) + math.Abs(math.Log(float64(1+otherSeqLen)/float64(1+seqLen)))
}

// CostGrid holds what the operators of a model cost, for each of its batch sizes at
// each of its sequence lengths, both ascending, as sums that make the cost of any span
// a difference. Between its cells it interpolates. It never changes and may be used
// concurrently.
type CostGrid struct {
	Sizes, SeqLens []int
	cells          []costSums
}

// costSums is a cell: micros[i] and work[i] are the sums over the operators
// before i.
type costSums struct {
	micros, work []float64
}

// NewCostGrid returns the grid of cells, nil if they do not make a grid.
func NewCostGrid(cells []CostCell) *CostGrid {
	g := &CostGrid{}
	for i := range cells {
		g.Sizes, g.SeqLens = append(g.Sizes, cells[i].Size), append(g.SeqLens, cells[i].SeqLen)
	}
	slices.Sort(g.Sizes)
	slices.Sort(g.SeqLens)
	g.Sizes, g.SeqLens = slices.Compact(g.Sizes), slices.Compact(g.SeqLens)
	if len(cells) == 0 || len(cells) != len(g.Sizes)*len(g.SeqLens) {
		return nil
	}
	g.cells = make([]costSums, len(cells))
	for i := range cells {
		c := &cells[i]
		b, _ := slices.BinarySearch(g.Sizes, c.Size)
		q, _ := slices.BinarySearch(g.SeqLens, c.SeqLen)
		sums := &g.cells[q*len(g.Sizes)+b]
		if sums.micros != nil {
			return nil // there are two of one size and sequence length
		}
		*sums = costSums{prefix(c.Micros), prefix(c.Work)}
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

// costs are those of a batch, from which those of any of its spans follow: up to four
// cells, and the weight of each.
type costs struct {
	cells  [4]*costSums
	weight [4]float64
	n      int
}

// At returns the costs of a batch. It does not allocate.
func (g *CostGrid) At(size, seqLen int) (c costs) {
	b, larger := Beside(g.Sizes, size)
	q, longer := Beside(g.SeqLens, seqLen)
	c.add(g.cells[q*len(g.Sizes)+b:], 1-longer, larger)
	if longer > 0 {
		c.add(g.cells[(q+1)*len(g.Sizes)+b:], longer, larger)
	}
	return c
}

func (c *costs) add(cells []costSums, weight, larger float64) {
	c.cells[c.n], c.weight[c.n] = &cells[0], weight*(1-larger)
	c.n++
	if larger > 0 {
		c.cells[c.n], c.weight[c.n] = &cells[1], weight*larger
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
