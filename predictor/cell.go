package predictor

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

// span is at least minNanos even where the sums are too coarse to tell.
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
