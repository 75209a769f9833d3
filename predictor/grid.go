package predictor

import (
	"math"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Beside returns the lower of the two knots around a value on an ascending axis, and the weight of
// the next knot; the lower one has the rest of 1. The axis needs at least one knot. Beyond either
// end, only the outermost knot counts: a value below the range may not cost less than measured, and
// one above the range is not extrapolated.
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

// Apart returns the distance between two batches: the sum of the logarithms of the ratios of their
// sizes and of their sequence lengths.
func Apart(size, seqLen, otherSize, otherSeqLen int) float64 {
	return math.Abs(math.Log(float64(otherSize)/float64(size))) + math.Abs(math.Log(float64(1+otherSeqLen)/float64(1+seqLen)))
}

// CostGrid holds the costs of a model's operators for every combination of its batch sizes and
// sequence lengths, both ascending. Costs are stored as prefix sums, so that the cost of any
// span is a difference. Between cells it interpolates. It is immutable and safe for concurrent
// use.
type CostGrid struct {
	Sizes, SeqLens []int
	cells          []costSums
}

// costSums is a cell of a grid: micros[i] and work[i] are the sums over the operators before i.
type costSums struct {
	micros, work []float64
}

// NewCostGrid returns a grid of cells, or nil if they do not form a complete grid.
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
			// Two cells have the same size and sequence length.
			return nil
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

// costs holds up to four cells of a grid with their weights, from which the cost of any span of a
// batch is interpolated.
type costs struct {
	cells  [4]*costSums
	weight [4]float64
	n      int
}

// At returns the costs of a batch of the given size and sequence length. It does not allocate.
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

// Span returns the isolated latency of operators [start, end) and their work, in microseconds.
func (c *costs) Span(start, end int) (micros, work float64) {
	for k := range c.n {
		s := c.cells[k]
		micros += c.weight[k] * (s.micros[end] - s.micros[start])
		work += c.weight[k] * (s.work[end] - s.work[start])
	}
	return micros, work
}

// before returns the sums over the operators before i.
func (c *costs) before(i int) (micros, work float64) {
	for k := range c.n {
		micros += c.weight[k] * c.cells[k].micros[i]
		work += c.weight[k] * c.cells[k].work[i]
	}
	return micros, work
}

// Together returns an approximation of how long spans take that run concurrently, from their
// isolated latencies and their total work. It is about the maximum of all of these: the group takes
// as long as its longest span or as its work occupies the device. The 16-norm smooths the maximum
// where two terms are nearly equal. A single span takes its isolated latency.
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
	// Dividing by the largest term keeps the powers from overflowing.
	sum := Power16(work / top)
	for _, m := range micros {
		sum += Power16(m / top)
	}
	return top * math.Sqrt(math.Sqrt(math.Sqrt(math.Sqrt(sum))))
}

// Power16 returns x to the power of 16. Package training/fit uses it for the gradient of
// [Together]: the logarithmic derivative by one term is Power16(term / norm).
func Power16(x float64) float64 {
	x *= x
	x *= x
	x *= x
	return x * x
}

// ModelOrder returns the indices of spans in the order of their models. There may be at most
// MaxSpans spans. Encoding in this order makes an estimate independent of the order in which a
// scheduler lists the spans, because floating-point sums depend on it.
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
