package selection

import (
	"cmp"
	"runtime"
	"slices"
	"sync"

	"gonum.org/v1/gonum/floats"
)

// chain is a worker's Markov chain: what an action leads to.
//
// Time is cut at the waits at which the slack of a query passes from a level to the next. What
// is still unknown when a batch of latency l starts is when the worker's first query comes:
// some time x before the end, 0 < x < l. Going back from the end, x = 0, an interval at a
// time, the value of "x to go, r arrivals at the central queue since the worker's last, and
// none at the worker since the batch started" follows from that of the interval after it. It
// does not depend on the action, which only says where to stop. So no transition matrix is
// ever made, and an action costs as much as there are phases r.
//
// In the terms of section 4.4.2, the intervals from l down to x are B, the one in which the
// first query comes is C, and those after it are D.
type chain struct {
	*Worker
	slack   []float64     // levels, ascending from 0 to the target
	waited  []float64     // cuts, ascending from 0 to the target
	steps   [][]float64   // arrivals within the interval above each cut but the last
	after   [][][]float64 // worker's arrivals in D, by the cut at which it starts and arrivals of C in excess
	phases  [][]float64   // of each state
	runs    []run
	byBatch [][]int // runs of each batch, the fastest first
	dropped int     // run that drops a query and takes no time

	*carry // nil where nothing is left behind

	// Scratch space of expect and spread: values by cut, of the phases without an arrival and
	// of the excess beyond one, and values of the runs by phase.
	at    [][]float64
	ahead [][]float64
}

// run is a batch of a variant.
type run struct {
	variant, batch int
	latency        float64
	cut            int       // the last one below its latency
	first          []float64 // arrivals within what is above that cut
}

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
	excess := make([]int, len(c.waited)) // arrivals within the interval above each cut, beyond one
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

// levelsOf returns the levels of slack (section 4.2). With one at each latency, 0 and the
// target are levels too: a query may have less than the shortest, or all.
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

// addRuns adds the runs of a batch, the fastest first. It is the one where no time is left;
// of the others those that could never be in time are left out.
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
		r.cut = at - 1 // latencies are above 0, the first cut
		r.first = c.counts(r.latency - c.waited[r.cut])
		c.byBatch[batch] = append(c.byBatch[batch], len(c.runs))
		c.runs = append(c.runs, r)
	}
}

// dealt returns the probability of each number of queries that come to the worker within t
// milliseconds, for each number below most that the central queue has had since the worker's
// last one.
func (c *chain) dealt(t float64, most int) (numbers [][]float64) {
	counts := c.counts(t)
	for since := range most {
		p := make([]float64, min((since+len(counts)-1)/c.Workers, c.Queue)+1)
		for k, q := range counts {
			p[min((since+k)/c.Workers, c.Queue)] += q // the queue is full anyway
		}
		numbers = append(numbers, p)
	}
	return numbers
}

// state returns the index of a state with n queries, which is at least 1. One that has more
// than fit is the full queue, without slack (section 4.2.3).
func (c *chain) state(n, level int) int {
	if n > c.Queue {
		n, level = c.Queue, 0
	}
	return (n-1)*len(c.slack) + level
}

func (c *chain) split(state int) (n, level int) {
	return state/len(c.slack) + 1, state % len(c.slack)
}

// fresh is the state after an empty queue: one query with all of its time (case 1).
func (c *chain) fresh() int { return c.state(1, len(c.slack)-1) }

// level returns the level of slack of a query that comes in the interval above a cut. Beyond
// the target its slack is below 0, and it is late whatever is done: it has the lowest.
func (c *chain) level(cut int) int { return max(0, len(c.slack)-2-cut) }

// expect sets ahead to what is to be expected after each run, given what each state is worth.
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

// spread is the reverse of expect: it adds to next the probability of each state after the
// runs, which the phases in ahead have started with.
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

// pull sets each phase to what is to be expected after so many arrivals, and push, its reverse,
// adds to each the probability of those that so many arrivals bring there.
func pull(from, p, to []float64) {
	for r := range to {
		to[r] = floats.Dot(p, from[r:r+len(p)])
	}
}

func push(from, p, to []float64) {
	for r, q := range from {
		if q > 0 {
			floats.AddScaled(to[r:r+len(p)], q, p)
		}
	}
}

// inTime reports whether a run ends before a query with such slack is late.
func (c *chain) inTime(r, level int) bool {
	return c.runs[r].latency <= c.slack[level]*(1+1e-12)
}

// onTime reports whether a run answers all of its queries in time.
func (c *chain) onTime(r, level int) bool {
	return c.runs[r].variant != Dropped && c.inTime(r, level)
}

// parallel returns f of each number below n, found on all cores.
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
