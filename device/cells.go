package device

import (
	"slices"

	"github.com/overlapd/overlapd/predictor"
)

// cells is what the operators of a model cost, on a grid of sequence lengths
// and batch sizes.
type cells struct {
	sizes, seqLens []int
	sums           []costSums // of size b and sequence length q at q*len(sizes)+b
}

// costSums are the costs of the operators before each.
type costSums struct {
	micros, work []float64
}

// weight is what a knot counts for a value between two.
type weight struct {
	at   int
	part float64
}

// newCells takes cells that are a whole grid.
func newCells(list []predictor.CostCell) *cells {
	c := &cells{}
	for i := range list {
		c.sizes = append(c.sizes, list[i].Size)
		c.seqLens = append(c.seqLens, list[i].SeqLen)
	}
	slices.Sort(c.sizes)
	slices.Sort(c.seqLens)
	c.sizes, c.seqLens = slices.Compact(c.sizes), slices.Compact(c.seqLens)
	c.sums = make([]costSums, len(c.sizes)*len(c.seqLens))
	for i := range list {
		b, _ := slices.BinarySearch(c.sizes, list[i].Size)
		q, _ := slices.BinarySearch(c.seqLens, list[i].SeqLen)
		c.sums[q*len(c.sizes)+b] = costSums{prefix(list[i].Micros), prefix(list[i].Work)}
	}
	return c
}

func prefix(values []float64) []float64 {
	sums := make([]float64, len(values)+1)
	for i, v := range values {
		sums[i+1] = sums[i] + v
	}
	return sums
}

// around returns the knots beside a value. Beyond the outermost it is those.
func around(knots []int, value int) (low, high weight) {
	i := 0
	for i < len(knots) && knots[i] < value {
		i++
	}
	switch {
	case i == len(knots):
		return weight{i - 1, 1}, weight{i - 1, 0}
	case i == 0 || knots[i] == value:
		return weight{i, 1}, weight{i, 0}
	}
	part := float64(value-knots[i-1]) / float64(knots[i]-knots[i-1])
	return weight{i - 1, 1 - part}, weight{i, part}
}

// span returns what operators [start, end) cost.
func (c *cells) span(start, end int, sizes, seqLens [2]weight) (micros, work float64) {
	for _, q := range seqLens {
		for _, b := range sizes {
			if part := q.part * b.part; part > 0 {
				s := &c.sums[q.at*len(c.sizes)+b.at]
				micros += part * (s.micros[end] - s.micros[start])
				work += part * (s.work[end] - s.work[start])
			}
		}
	}
	return micros, work
}
