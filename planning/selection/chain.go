package selection

import (
	"cmp"
	"runtime"
	"slices"
	"sync"

	"gonum.org/v1/gonum/floats"
)

// chain is a worker's Markov chain: the outcomes of each action.
//
// Cuts divide time at the waits at which the slack of a query passes from a level to the next. When
// a batch of latency l starts, it is unknown when the worker's next query will arrive: at some time
// x before the end, 0 < x < l. The chain works backwards from the end, x = 0, one interval at a
// time. For each interval it derives the value of "x to go, r arrivals at the central queue since
// the worker's last, and none at the worker since the batch started" from that of the interval
// after it. This value does not depend on the action, which only determines at which x to stop. So
// the chain never builds a transition matrix, and an action costs one step for each phase r.
//
// In the terms of section 4.4.2, the intervals from l down to x are B, the interval in which the
// first query arrives is C, and the intervals after it are D.
type chain struct {
	*Worker

	// slack holds the levels and waited the cuts, both ascending from 0 to the target.
	slack  []float64
	waited []float64

	// steps is the distribution of arrivals within the interval above each cut but the last.
	steps [][]float64

	// after is the distribution of the worker's arrivals in D. Its indices are the cut at which D
	// starts and the excess, the arrivals of C after the worker's first.
	after [][][]float64

	// phases is the distribution of the phase r for each state.
	phases [][]float64
	runs   []run

	// byBatch lists the runs of each batch size, the fastest first. dropped is the index of the run
	// that drops a query and takes no time.
	byBatch [][]int
	dropped int

	// carry is nil if no action leaves queries behind.
	*carry

	// The scratch space of expect and spread. at holds values by cut: first those of the phases
	// without an arrival, then those of each excess. ahead holds the values of the runs by phase.
	at    [][]float64
	ahead [][]float64
}

// run is the execution of one batch by one variant.
type run struct {
	variant, batch int
	latency        float64

	// cut is the last cut below the latency, and first the distribution of arrivals in the interval
	// between that cut and the latency.
	cut   int
	first []float64
}

// newChain computes the distributions that do not depend on the policy.
func newChain(w *Worker) *chain {
	c := &chain{Worker: w, slack: levelsOf(w), byBatch: make([][]int, w.Queue+1)}
	for _, s := range slices.Backward(c.slack) {
		c.waited = append(c.waited, w.Target-s)
	}
	last := len(c.waited) - 1
	c.waited[last] = w.Target
	c.steps = parallel(last, func(i int) []float64 { return w.counts(c.waited[i+1] - c.waited[i]) })
	for n := 1; n <= w.Queue; n++ {
		c.addRuns(n)
	}
	if w.Drop {
		c.dropped = len(c.runs)
		c.runs = append(c.runs, run{variant: Dropped, batch: 1, first: []float64{1}})
	}
	if w.Drop || w.Variable {
		c.carry = newCarry(c)
	}
	// excess is the most arrivals within the interval above each cut, less one.
	excess := make([]int, len(c.waited))
	for i, p := range c.steps {
		excess[i] = len(p) - 1
	}
	for _, r := range c.runs {
		excess[r.cut] = max(excess[r.cut], len(r.first)-1)
		c.ahead = append(c.ahead, make([]float64, w.Workers))
	}
	c.after = parallel(len(c.waited), func(i int) [][]float64 { return c.dealt(c.waited[i], excess[i]) })
	for _, n := range excess {
		c.at = append(c.at, make([]float64, w.Workers+n))
	}
	c.phases = parallel(w.Queue*len(c.slack), func(state int) []float64 {
		n, level := c.split(state)
		return w.phase(n, w.Target-c.slack[level])
	})
	return c
}

// levelsOf returns the levels of slack (section 4.2). It includes, apart from the latencies, 0 and
// the target, because a query may have less slack than the shortest latency, or all of it.
func levelsOf(w *Worker) (levels []float64) {
	if w.Levels > 0 {
		for j := range w.Levels {
			levels = append(levels, w.Target*float64(j)/float64(w.Levels))
		}
		return append(levels, w.Target)
	}
	levels = []float64{0, w.Target}
	for _, v := range w.Variants {
		for _, l := range v.Latency[:min(len(v.Latency), w.Queue)] {
			if l < w.Target {
				levels = append(levels, l)
			}
		}
	}
	slices.Sort(levels)
	return slices.Compact(levels)
}

// addRuns adds the runs of a batch size, the fastest first. The fastest is always added, because it
// runs when no time is left. The others are added only if they can be in time at all.
func (c *chain) addRuns(batch int) {
	var runs []run
	for v := range c.Variants {
		if l := c.Variants[v].Latency; batch <= len(l) {
			runs = append(runs, run{variant: v, batch: batch, latency: l[batch-1]})
		}
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.latency, b.latency) })
	for i, r := range runs {
		if i > 0 && r.latency > c.Target {
			break
		}
		at, _ := slices.BinarySearch(c.waited, r.latency)
		// Latencies are above 0, the first cut.
		r.cut = at - 1
		r.first = c.counts(r.latency - c.waited[r.cut])
		c.byBatch[batch] = append(c.byBatch[batch], len(c.runs))
		c.runs = append(c.runs, r)
	}
}

// dealt returns the distributions of the number of queries that reach the worker within t
// milliseconds. Element i is for i arrivals at the central queue since the worker's last one, for
// each i below most.
func (c *chain) dealt(t float64, most int) (numbers [][]float64) {
	counts := c.counts(t)
	for since := range most {
		p := make([]float64, min((since+len(counts)-1)/c.Workers, c.Queue)+1)
		for k, q := range counts {
			// The queue holds no more.
			p[min((since+k)/c.Workers, c.Queue)] += q
		}
		numbers = append(numbers, p)
	}
	return numbers
}

// state returns the index of a state with n queries, at least 1. More queries than the queue holds
// become the full queue without slack (section 4.2.3).
func (c *chain) state(n, level int) int {
	if n > c.Queue {
		n, level = c.Queue, 0
	}
	return (n-1)*len(c.slack) + level
}

// split is the reverse of state.
func (c *chain) split(state int) (n, level int) {
	return state/len(c.slack) + 1, state % len(c.slack)
}

// fresh returns the state after an empty queue: one query with all of its time (section 4.4.1).
func (c *chain) fresh() int { return c.state(1, len(c.slack)-1) }

// level returns the level of slack of a query that arrives in the interval above a cut. Above the
// target its slack is negative. It will be late in any case and gets the lowest level.
func (c *chain) level(cut int) int { return max(0, len(c.slack)-2-cut) }

// expect sets ahead to the expected value after each run, given the value of each state.
func (c *chain) expect(value []float64) {
	k := c.Workers
	each(len(c.at), func(i int) {
		level := c.level(i)
		for excess, p := range c.after[i] {
			sum := 0.0
			for more, q := range p {
				sum += q * value[c.state(1+more, level)]
			}
			c.at[i][k+excess] = sum
		}
	})
	for r := range k {
		c.at[0][r] = value[c.fresh()]
	}
	for i, p := range c.steps {
		pull(c.at[i], p, c.at[i+1][:k])
	}
	each(len(c.runs), func(i int) { pull(c.at[c.runs[i].cut], c.runs[i].first, c.ahead[i]) })
}

// spread is the reverse of expect. Given the phases in ahead with which each run starts, it adds
// the probability of each state after the runs to next.
func (c *chain) spread(next []float64) {
	k := c.Workers
	for i := range c.at {
		clear(c.at[i])
	}
	for i, r := range c.runs {
		push(c.ahead[i], r.first, c.at[r.cut])
	}
	for i, p := range slices.Backward(c.steps) {
		push(c.at[i+1][:k], p, c.at[i])
	}
	next[c.fresh()] += floats.Sum(c.at[0][:k])
	for i := range c.at {
		level := c.level(i)
		for excess, p := range c.after[i] {
			for more, q := range p {
				next[c.state(1+more, level)] += c.at[i][k+excess] * q
			}
		}
	}
}

// pull sets each element of to to the expected value after a number of arrivals with the
// distribution p.
func pull(from, p, to []float64) {
	for r := range to {
		to[r] = floats.Dot(p, from[r:r+len(p)])
	}
}

// push is the reverse of pull: it adds to each element of to the probability of reaching it.
func push(from, p, to []float64) {
	for r, q := range from {
		if q > 0 {
			floats.AddScaled(to[r:r+len(p)], q, p)
		}
	}
}

// inTime reports whether a run ends before a query of that level of slack is late.
func (c *chain) inTime(r, level int) bool {
	return c.runs[r].latency <= c.slack[level]*(1+1e-12)
}

// onTime reports whether a run answers all of its queries in time.
func (c *chain) onTime(r, level int) bool {
	return c.runs[r].variant != Dropped && c.inTime(r, level)
}

// parallel returns the values of f for each number below n, computed on all cores.
func parallel[T any](n int, f func(int) T) []T {
	list := make([]T, n)
	each(n, func(i int) { list[i] = f(i) })
	return list
}

// each calls f for each number below n, on all cores.
func each(n int, f func(int)) {
	cores := runtime.GOMAXPROCS(0)
	var all sync.WaitGroup
	for core := range min(cores, n) {
		all.Go(func() {
			for i := core; i < n; i += cores {
				f(i)
			}
		})
	}
	all.Wait()
}
