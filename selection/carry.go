package selection

import "gonum.org/v1/gonum/mathext"

// What is carried over. A batch of b of n queries, or dropping the first, leaves some behind,
// and the next of them is then the most urgent. It came within interval A, as the b·K-th
// arrival at the central queue since the first one. Of (n-1)·K + r arrivals within A, which
// are uniform in time, at least b·K are in a part of it with the probability of a binomial
// distribution. How many more come while the batch runs depends on r too, so both are taken
// by groups of phases r: exactly if there are no more phases than groups.
const (
	groups = 4
	grain  = 1024 // points of A at which the distribution is known

	unlikely = 1e-10 // probability that is left out
)

// carry has what is known of the queries that are left.
type carry struct {
	came [][]order     // probability that the next came in the first i/grain of A, by (n, b) and group
	more [][][]float64 // how many come to the worker during each run, by phase
}

// partial reports whether an action may take b of n queries and leave the others.
func (c *chain) partial(n, b int) bool { return b < n && (c.Variable || c.Drop && b == 1) }

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

// group returns the phases of a group.
func (c *chain) group(g int) (from, to int) {
	n := min(groups, c.Workers)
	return g * c.Workers / n, (g + 1) * c.Workers / n
}

// order is the distribution of an order statistic: the probability that it is below i/grain.
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

// before returns the probability that it is below x.
func (o order) before(x float64) float64 {
	i := int(x * grain)
	if i >= grain {
		return 1
	}
	return o[i] + (x*grain-float64(i))*(o[i+1]-o[i])
}

// carried returns what is to be expected after a run that leaves queries behind, given what
// each state is worth. If next is not nil, it instead adds to it q times the probability of
// each state.
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

// moreOf adds to sum, for each phase of a group, its probability times that of so many queries
// that come to the worker during a run, and returns what is filled of sum from the first number
// on that is not unlikely.
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
