package selection

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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
	slack   []float64   // levels, ascending from 0 to the target
	waited  []float64   // cuts, ascending from 0 to the target
	steps   [][]float64 // arrivals within the interval above each cut but the last
	after   [][]band    // what happens in D, by the cut at which it starts and arrivals of C in excess
	phases  [][]float64 // of each state
	runs    []run
	byBatch [][]int // runs of each batch, the fastest first
	dropped int     // run that drops a query and takes no time
	wide    int     // arrivals in excess, at most

	*carry // nil where nothing is left behind

	// Scratch space of expect and spread: values by cut, of the phases without an arrival and
	// of the excess beyond one, and values of the runs by phase.
	at    [][]float64
	ahead [][]float64
}

// band is a distribution of the worker's arrivals from first on.
type band struct {
	first int
	p     []float64
}

// run is a batch of a variant.
type run struct {
	variant, batch int
	latency        float64
	cut            int       // the last one below its latency
	first          []float64 // arrivals within what is above that cut
}

func newChain(w *Worker) *chain {
	c := &chain{Worker: w}
	c.slack = levelsOf(w)
	for _, s := range slices.Backward(c.slack) {
		c.waited = append(c.waited, w.Target-s)
	}
	last := len(c.waited) - 1
	c.waited[last] = w.Target
	c.steps = make([][]float64, last)
	parallel(last, func(i int) { c.steps[i] = w.counts(c.waited[i+1] - c.waited[i]) })
	c.byBatch = make([][]int, w.Queue+1)
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
	for _, p := range c.steps {
		c.wide = max(c.wide, len(p)-1)
	}
	for _, r := range c.runs {
		c.wide = max(c.wide, len(r.first)-1)
	}
	c.after = make([][]band, len(c.waited))
	parallel(len(c.waited), func(i int) { c.after[i] = c.afterFirst(c.waited[i]) })
	c.phases = make([][]float64, w.Queue*len(c.slack))
	parallel(len(c.phases), func(s int) {
		n, j := c.split(s)
		c.phases[s] = w.phase(n, w.Target-c.slack[j])
	})
	for range c.waited {
		c.at = append(c.at, make([]float64, w.Workers+c.wide))
	}
	for range c.runs {
		c.ahead = append(c.ahead, make([]float64, w.Workers))
	}
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

// afterFirst returns how many more queries come to the worker within t milliseconds, for each
// number of arrivals at the central queue since its first one.
func (c *chain) afterFirst(t float64) (bands []band) {
	p := c.counts(t)
	for excess := range c.wide {
		bands = append(bands, c.dealt(p, excess))
	}
	return bands
}

// dealt returns how many queries come to the worker, given the probability of so many arrivals
// at the central queue and how many it has had since the worker's last one.
func (c *chain) dealt(p []float64, since int) band {
	b := band{first: min(since/c.Workers, c.Queue)}
	for k, q := range p {
		more := min((since+k)/c.Workers, c.Queue) - b.first // the queue is full anyway
		for len(b.p) <= more {
			b.p = append(b.p, 0)
		}
		b.p[more] += q
	}
	return b
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
	parallel(len(c.at), func(i int) {
		level := c.level(i)
		for excess, b := range c.after[i] {
			sum := 0.0
			for a, q := range b.p {
				sum += q * value[c.state(1+b.first+a, level)]
			}
			c.at[i][k+excess] = sum
		}
	})
	for r := range k {
		c.at[0][r] = value[c.fresh()]
	}
	for i, p := range c.steps {
		for r := range k {
			c.at[i+1][r] = dot(p, c.at[i][r:])
		}
	}
	parallel(len(c.runs), func(i int) {
		from := c.at[c.runs[i].cut]
		for r := range k {
			c.ahead[i][r] = dot(c.runs[i].first, from[r:])
		}
	})
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
	for _, q := range c.at[0][:k] {
		next[c.fresh()] += q
	}
	for i := range c.at {
		level := c.level(i)
		for excess, b := range c.after[i] {
			q := c.at[i][k+excess]
			if q == 0 {
				continue
			}
			for a, p := range b.p {
				next[c.state(1+b.first+a, level)] += q * p
			}
		}
	}
}

// push adds to each phase the probability of those that so many arrivals bring there.
func push(from, p, to []float64) {
	for r, q := range from {
		if q == 0 {
			continue
		}
		for k := range p {
			to[r+k] += q * p[k]
		}
	}
}

func dot(a, b []float64) (sum float64) {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + (s2 + s3)
}

// inTime reports whether a run ends before a query with such slack is late.
func (c *chain) inTime(r, level int) bool {
	return c.runs[r].latency <= c.slack[level]*(1+1e-12)
}

// onTime reports whether a run answers all of its queries in time.
func (c *chain) onTime(r, level int) bool {
	return c.runs[r].variant != Dropped && c.inTime(r, level)
}

// parallel calls f for each number below n, on all cores.
func parallel(n int, f func(int)) {
	cores := min(runtime.GOMAXPROCS(0), n)
	grain := max(1, n/(8*max(cores, 1)))
	var next atomic.Int64
	work := func() {
		for {
			end := int(next.Add(int64(grain)))
			for i := end - grain; i < min(end, n); i++ {
				f(i)
			}
			if end >= n {
				return
			}
		}
	}
	var all sync.WaitGroup
	for range cores - 1 {
		all.Go(work)
	}
	work()
	all.Wait()
}
