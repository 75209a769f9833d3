package predictor

import "slices"

// costs are the cells of a model with their sums, by sequence length, then
// size.
type costs struct {
	seqLens []int
	planes  [][]costSums // planes[i] holds those of seqLens[i]
}

// costSums is a cell: micros[i] and work[i] are the sums over the operators
// before i.
type costSums struct {
	size         int
	micros, work []float64
}

// mix is the cells that a batch lies between, and what each counts.
type mix struct {
	cells  [4]*costSums
	weight [4]float64
	n      int
}

func newCosts(cells []CostCell) costs {
	var c costs
	for i := range cells {
		cell := &cells[i]
		at, found := slices.BinarySearch(c.seqLens, cell.SeqLen)
		if !found {
			c.seqLens = slices.Insert(c.seqLens, at, cell.SeqLen)
			c.planes = slices.Insert(c.planes, at, nil)
		}
		c.planes[at] = append(c.planes[at], costSums{
			size: cell.Size, micros: prefix(cell.Micros), work: prefix(cell.Work),
		})
	}
	for _, plane := range c.planes {
		slices.SortFunc(plane, func(a, b costSums) int { return a.size - b.size })
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

// at sets m to the cells around a batch. Beyond the outermost cells it takes
// those: a smaller batch may take no less.
func (c *costs) at(size, seqLen int, m *mix) {
	m.n = 0
	i := 0
	for i < len(c.seqLens) && c.seqLens[i] < seqLen {
		i++
	}
	switch {
	case i == len(c.seqLens):
		m.plane(c.planes[i-1], size, 1)
	case i == 0 || c.seqLens[i] == seqLen:
		m.plane(c.planes[i], size, 1)
	default:
		high := float64(seqLen-c.seqLens[i-1]) / float64(c.seqLens[i]-c.seqLens[i-1])
		m.plane(c.planes[i-1], size, 1-high)
		m.plane(c.planes[i], size, high)
	}
}

func (m *mix) plane(cells []costSums, size int, weight float64) {
	i := 0
	for i < len(cells) && cells[i].size < size {
		i++
	}
	switch {
	case i == len(cells):
		m.add(&cells[i-1], weight)
	case i == 0 || cells[i].size == size:
		m.add(&cells[i], weight)
	default:
		high := float64(size-cells[i-1].size) / float64(cells[i].size-cells[i-1].size)
		m.add(&cells[i-1], weight*(1-high))
		m.add(&cells[i], weight*high)
	}
}

func (m *mix) add(c *costSums, weight float64) {
	m.cells[m.n], m.weight[m.n] = c, weight
	m.n++
}

// before returns the costs of the operators before i.
func (m *mix) before(i int) (micros, work float64) {
	for k := range m.n {
		micros += m.weight[k] * m.cells[k].micros[i]
		work += m.weight[k] * m.cells[k].work[i]
	}
	return micros, work
}
