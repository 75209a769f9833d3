package reproduce

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/overlapd/overlapd/selection"
	"github.com/overlapd/overlapd/stats"
)

// Here the queries of one service are served by equal workers, each of which runs one batch
// of one variant at a time and takes as long as the profile says (RAMSIS, sections 6 and
// 7.3.1). It is not done with package sim: there the daemon's scheduler decides, which has no
// queue for each worker and none of the rules of the baselines. All times are in milliseconds.

// fleet is the workers, and the variants of the front that each of them has.
type fleet struct {
	variants []selection.Variant
	target   float64
	workers  int
}

// stream is when queries come, and how many a second came lately.
type stream struct {
	times []float64
	came  []int // within so many whole milliseconds; nil if the load is known

	known float64 // load, if it is
}

// window is how long the load monitor looks back (section 6).
const window = 500

// load returns what the monitor says: without a whole window yet, that anything may come.
func (s *stream) load(now float64) float64 {
	if s.came == nil {
		return s.known
	}
	at := min(int(now), len(s.came)-1)
	if at < window {
		return math.Inf(1)
	}
	return float64(s.came[at]-s.came[at-window]) * 1000 / window
}

// constant returns queries with a load that stays the same and that is known, as gamma
// arrivals with a coefficient of variation, 1 for a Poisson process.
func constant(load, seconds, cv float64, r *rand.Rand) *stream {
	s, shape := &stream{known: load, times: make([]float64, 0, int(load*seconds*1.05))}, 1/(cv*cv)
	next := r.ExpFloat64
	if cv != 1 {
		next = func() float64 { return stats.Gamma(shape, r) / shape }
	}
	for at := next() / load; at < seconds; at += next() / load {
		s.times = append(s.times, 1000*at)
	}
	return s
}

// changing returns queries as a Poisson process whose load changes every so many seconds, and
// which only the monitor knows.
func changing(loads []float64, seconds float64, r *rand.Rand) *stream {
	s := &stream{came: []int{0}}
	for i, load := range loads {
		for at := r.ExpFloat64() / load; at < seconds; at += r.ExpFloat64() / load {
			s.times = append(s.times, 1000*(float64(i)*seconds+at))
		}
	}
	for n, at := range s.times {
		for len(s.came) <= int(at) {
			s.came = append(s.came, n)
		}
	}
	return s
}

// outcome is what became of queries.
type outcome struct {
	queries, inTime int
	accuracy        float64 // sum over those in time
}

// mean is the accuracy per satisfied query, violations the part of the queries that is late
// or dropped: the metrics of section 7.
func (o *outcome) mean() float64       { return o.accuracy / float64(max(o.inTime, 1)) }
func (o *outcome) violations() float64 { return 1 - float64(o.inTime)/float64(max(o.queries, 1)) }

// answer counts a query that came, and was answered by a variant at a time.
func (o *outcome) answer(v *selection.Variant, came, at, target float64) {
	o.queries++
	if at <= came+target {
		o.inTime++
		o.accuracy += v.Accuracy
	}
}

// dealt serves queries that are dealt out to the workers in turn, each by the policy for what
// waits there (section 3.2). So workers do not affect each other.
func (f *fleet) dealt(s *stream, policy func(load float64) *selection.Policy) (o outcome) {
	for w := range min(f.workers, len(s.times)) {
		free := 0.0
		n, last := 0, w // queries that wait, and the first that has not come
		for first := w; first < len(s.times); {
			now := max(free, s.times[first])
			for ; last < len(s.times) && s.times[last] <= now; last += f.workers {
				n++
			}
			p := policy(s.load(now))
			variant, batch := p.Choose(n, s.times[first]+f.target-now)
			n -= batch
			if variant == selection.Dropped {
				o.queries += batch
				first += batch * f.workers
				continue
			}
			v := &p.Variants[variant]
			free = now + v.Latency[batch-1]
			for ; batch > 0; batch-- {
				o.answer(v, s.times[first], free, f.target)
				first += f.workers
			}
		}
	}
	return o
}

// setting is the variant that all workers use at a load, and the largest batch: what the
// baselines choose.
type setting struct{ variant, batch int }

// central serves queries from one queue: as soon as a worker is free it takes as many as wait,
// up to the largest batch (section 7).
func (f *fleet) central(s *stream, choose func(load float64) setting) (o outcome) {
	free := make([]float64, f.workers)
	for first, last := 0, 0; first < len(s.times); {
		w := 0
		for i, at := range free {
			if at < free[w] {
				w = i
			}
		}
		now := max(free[w], s.times[first])
		for last < len(s.times) && s.times[last] <= now {
			last++
		}
		c := choose(s.load(now))
		v, batch := &f.variants[c.variant], min(last-first, c.batch)
		free[w] = now + v.Latency[batch-1]
		for ; batch > 0; batch-- {
			o.answer(v, s.times[first], free[w], f.target)
			first++
		}
	}
	return o
}

// rate is how many queries a second all workers do in batches of a setting.
func (f *fleet) rate(c setting) float64 {
	return 1000 * float64(c.batch*f.workers) / f.variants[c.variant].Latency[c.batch-1]
}

// fallback is what baselines choose for a load that nothing bears.
func (f *fleet) fallback() setting { return setting{0, len(f.variants[0].Latency)} }

// spare is how much more than the load a variant must do under Jellyfish+, as in the program
// of RAMSIS's authors.
const spare = 1.05

// jellyfish returns what Jellyfish+ chooses for a load: the most accurate variant of which
// all workers do more than that in batches that take at most half the target, and the
// largest such batch.
func (f *fleet) jellyfish(load float64) setting {
	for i, v := range slices.Backward(f.variants) {
		for b, l := range slices.Backward(v.Latency) {
			if c := (setting{i, b + 1}); l <= f.target/2 && f.rate(c) > spare*load {
				return c
			}
		}
	}
	return f.fallback()
}

// ModelSwitching measures loads that are so far apart, and bears so many late queries, since
// the 99th percentile of what they take must be within the target.
const (
	switchingStep = 100
	switchingLate = 0.01
)

// switching measures variants at loads from low to high, for so many seconds each, and returns
// what ModelSwitching chooses: the most accurate variant whose 99th percentile of response time is within the
// target. The largest batch is that which takes at most half the target, or that which takes
// at most all of it, whichever has fewer late queries.
func (f *fleet) switching(low, high, cv float64, seconds func(load float64) float64, r *rand.Rand) func(load float64) setting {
	var table []setting
	at := len(f.variants) - 1 // what a load does not bear, no higher one does
	for load := low; load < high+switchingStep; load += switchingStep {
		s := constant(load, seconds(load), cv, r)
		best := f.fallback()
		for least := math.Inf(1); at >= 0; at-- {
			for _, most := range []float64{f.target / 2, f.target} {
				c := setting{at, f.largest(at, most)}
				if c.batch == 0 || f.rate(c) < load {
					continue
				}
				o := f.central(s, func(float64) setting { return c })
				if late := o.violations(); late <= switchingLate && late < least {
					best, least = c, late
				}
			}
			if least <= switchingLate {
				break
			}
		}
		table = append(table, best)
	}
	return func(load float64) setting {
		return table[int(min(max(math.Ceil((load-low)/switchingStep), 0), float64(len(table)-1)))]
	}
}

// largest returns the largest batch of a variant that takes at most so long, 0 if none does.
func (f *fleet) largest(variant int, most float64) int {
	l := f.variants[variant].Latency
	n, _ := slices.BinarySearch(l, math.Nextafter(most, math.Inf(1)))
	return n
}
