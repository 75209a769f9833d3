package selection

import "gonum.org/v1/gonum/mathext"

// The parameters of what a run leaves in the queue. A batch of b of n queries leaves n-b, and so
// does dropping the first, with b = 1. The first one left is then the most urgent. It arrived
// within interval A, as the b·K-th arrival at the central queue since the first query. A has
// (n-1)·K + r arrivals, which are uniform in time. So the probability that at least b·K of them are
// in a given part of A follows from a binomial distribution. The number of arrivals while the batch
// runs depends on the phase r too. Both are computed for groups of phases, which is exact if there
// are at most as many phases as groups.
const (
	groups = 4

	// grain is the number of steps of A at which the distribution is computed.
	grain = 1024

	// unlikely is the probability below which an outcome is ignored.
	unlikely = 1e-10
)

// carry holds the distributions for runs that leave queries behind.
type carry struct {
	// came is the distribution of the arrival of the first query left, as a part of A. Its indices
	// are (n, b) and the group of phases.
	came [][]order

	// more is the distribution of the worker's arrivals during a run. Its indices are the run and
	// the phase.
	more [][][]float64
}

// partial reports whether an action may take b of n queries and leave the others.
func (c *chain) partial(n, b int) bool { return b < n && (c.Variable || c.Drop && b == 1) }

// newCarry computes both for every action of the chain that leaves queries behind.
func newCarry(c *chain) *carry {
	came := parallel((c.Queue+1)*(c.Queue+1), func(i int) (list []order) {
		if n, b := i/(c.Queue+1), i%(c.Queue+1); b > 0 && c.partial(n, b) {
			for g := range min(groups, c.Workers) {
				from, to := c.group(g)
				list = append(list, orderStatistic((n-1)*c.Workers+(from+to-1)/2, b*c.Workers))
			}
		}
		return list
	})
	return &carry{came, parallel(len(c.runs), func(r int) [][]float64 { return c.dealt(c.runs[r].latency, c.Workers) })}
}

// group returns the phases of a group, as a half-open range.
func (c *chain) group(g int) (from, to int) {
	n := min(groups, c.Workers)
	return g * c.Workers / n, (g + 1) * c.Workers / n
}

// order is the distribution of an order statistic: element i is the probability that it is below
// i/grain.
type order []float64

// orderStatistic returns the distribution of the m-th smallest of k numbers from 0 to 1.
func orderStatistic(k, m int) (o order) {
	for i := range grain + 1 {
		p := mathext.RegIncBeta(float64(m), float64(k-m+1), float64(i)/grain)
		switch {
		case p < unlikely:
			p = 0
		case p > 1-unlikely:
			p = 1
		}
		o = append(o, p)
	}
	return o
}

// before returns the probability that the order statistic is below x, by linear interpolation.
func (o order) before(x float64) float64 {
	i := int(x * grain)
	if i >= grain {
		return 1
	}
	return o[i] + (x*grain-float64(i))*(o[i+1]-o[i])
}

// carried returns the expected value after a run that leaves queries behind, given the value of
// each state. If next is not nil, carried instead adds to it q times the probability of each state.
func (c *chain) carried(state, r int, value, next []float64, q float64) (sum float64) {
	n, level := c.split(state)
	b, latency := c.runs[r].batch, c.runs[r].latency
	waited, left := c.Target-c.slack[level], c.slack[level]-latency
	low, high := levelOf(c.slack, left), levelOf(c.slack, left+waited)
	came := c.came[n*(c.Queue+1)+b]
	for g := range came {
		var store [maxQueue + 1]float64
		first, more := c.moreOf(g, state, r, store[:])
		before := 0.0
		for to := low; to <= high && before < 1; to++ {
			upto := 1.0
			if to < high {
				upto = came[g].before((c.slack[to+1] - left) / waited)
			}
			p := upto - before
			if before = upto; p == 0 {
				continue
			}
			for a, m := range more {
				at := c.state(n-b+first+a, to)
				if next != nil {
					next[at] += q * p * m
				} else {
					sum += p * m * value[at]
				}
			}
		}
	}
	return sum
}

// moreOf computes the distribution of the worker's arrivals during run r for a group of phases,
// weighted with the probabilities of the phases. It adds the distribution to sum and returns the
// part of it that starts at first, the smallest number that is not unlikely. The probability of
// smaller numbers is added to that of first.
func (c *chain) moreOf(g, state, r int, sum []float64) (first int, p []float64) {
	from, to := c.group(g)
	most := 0
	for phase := from; phase < to; phase++ {
		weight, more := c.phases[state][phase], c.carry.more[r][phase]
		for a, q := range more {
			sum[a] += weight * q
		}
		most = max(most, len(more))
	}
	for first < most-1 && sum[first] < unlikely {
		sum[first+1] += sum[first]
		first++
	}
	return first, sum[first:most]
}
