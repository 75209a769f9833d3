package selection

import "math"

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
	came [][]order // probability that the next came in the first i/grain of A, by (n, b) and group
	more [][]band  // how many come to the worker during each run, by phase
}

// partial reports whether an action may take b of n queries and leave the others.
func (c *chain) partial(n, b int) bool { return b < n && (c.Variable || c.Drop && b == 1) }

func newCarry(c *chain) *carry {
	k := &carry{came: make([][]order, (c.Queue+1)*(c.Queue+1)), more: make([][]band, len(c.runs))}
	parallel(len(k.came), func(i int) {
		if n, b := i/(c.Queue+1), i%(c.Queue+1); b > 0 && c.partial(n, b) {
			k.came[i] = make([]order, min(groups, c.Workers))
			for g := range k.came[i] {
				from, to := c.group(g)
				k.came[i][g] = orderStatistic((n-1)*c.Workers+(from+to-1)/2, b*c.Workers)
			}
		}
	})
	parallel(len(c.runs), func(i int) {
		p := c.counts(c.runs[i].latency)
		for r := range c.Workers {
			k.more[i] = append(k.more[i], c.dealt(p, r).trimmed())
		}
	})
	return k
}

// group returns the phases of a group.
func (c *chain) group(g int) (from, to int) {
	n := min(groups, c.Workers)
	return g * c.Workers / n, (g + 1) * c.Workers / n
}

// order is the distribution of the m-th smallest of k numbers from 0 to 1: the probability
// that it is below i/grain, which is 0 up to from and 1 from to on.
type order struct {
	p        []float64
	from, to float64
}

func orderStatistic(k, m int) (o order) {
	o = order{p: make([]float64, grain+1), to: 1}
	o.p[grain] = 1
	all, _ := math.Lgamma(float64(k + 1))
	in, _ := math.Lgamma(float64(m + 1))
	out, _ := math.Lgamma(float64(k - m + 1))
	for i := 1; i < grain; i++ {
		x := float64(i) / grain
		at := math.Exp(all - in - out + float64(m)*math.Log(x) + float64(k-m)*math.Log1p(-x))
		if float64(m) > float64(k)*x { // the shorter tail
			for j := m; j <= k && at > negligible; j++ {
				o.p[i] += at
				at *= float64(k-j) / float64(j+1) * x / (1 - x)
			}
		} else {
			o.p[i] = 1
			for j := m; j > 0 && at > negligible; j-- {
				at *= float64(j) / float64(k-j+1) * (1 - x) / x
				o.p[i] -= at
			}
		}
		switch {
		case o.p[i] < unlikely:
			o.p[i], o.from = 0, x
		case o.p[i] > 1-unlikely:
			o.p[i], o.to = 1, min(o.to, x)
		}
	}
	return o
}

// before returns the probability that it is below x.
func (o *order) before(x float64) float64 {
	if x <= o.from {
		return 0
	}
	if x >= o.to {
		return 1
	}
	i := int(x * grain)
	return o.p[i] + (x*grain-float64(i))*(o.p[i+1]-o.p[i])
}

// carried returns what is to be expected after a run that leaves queries behind, given what
// each state is worth. If next is not nil, it instead adds to it q times the probability of
// each state.
func (c *chain) carried(state, r int, value, next []float64, q float64) (sum float64) {
	n, level := c.split(state)
	b, latency := c.runs[r].batch, c.runs[r].latency
	waited, left := c.Target-c.slack[level], c.slack[level]-latency
	low, high := c.levelAt(left), c.levelAt(left+waited)
	came := c.came[n*(c.Queue+1)+b]
	for g := range came {
		came := &came[g]
		var store [maxQueue + 1]float64
		first, more := c.moreOf(g, state, r, store[:])
		before := 0.0
		for to := max(low, c.levelAt(left+came.from*waited)); to <= high && before < 1; to++ {
			upto := 1.0
			if to < high {
				upto = came.before((c.slack[to+1] - left) / waited)
			}
			p := upto - before
			before = upto
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

// moreOf returns the probability of a phase of a group, and of so many queries from first on
// that come to the worker during a run.
func (c *chain) moreOf(g, state, r int, store []float64) (first int, p []float64) {
	from, to := c.group(g)
	first = c.carry.more[r][from].first
	length := 0
	for phase := from; phase < to; phase++ {
		weight, b := c.phases[state][phase], &c.carry.more[r][phase]
		at := b.first - first // the more arrivals already, the more queries
		for a, m := range b.p {
			store[at+a] += weight * m
		}
		length = max(length, at+len(b.p))
	}
	return first, store[:length]
}

// levelAt returns the level of a slack.
func (c *chain) levelAt(slack float64) int { return levelOf(c.slack, slack) }

// trimmed returns a distribution without what is unlikely at its ends.
func (b band) trimmed() band {
	for len(b.p) > 1 && b.p[0] < unlikely {
		b.p[1] += b.p[0]
		b.first, b.p = b.first+1, b.p[1:]
	}
	for n := len(b.p); n > 1 && b.p[n-1] < unlikely; n = len(b.p) {
		b.p[n-2] += b.p[n-1]
		b.p = b.p[:n-1]
	}
	return b
}
