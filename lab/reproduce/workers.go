package reproduce

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/planning/selection"
)

// The simulation of RAMSIS. Equal workers serve the queries of one service. Each runs one batch of
// one variant at a time, which takes the time in the profile (RAMSIS, sections 6 and 7.3.1).
// Package sim cannot be used, because the daemon's scheduler has neither a queue for each worker
// nor the rules of the baselines. All times are in milliseconds.

// fleet describes the workers. Each has all variants of the front.
type fleet struct {
	// variants are ordered from the fastest to the most accurate.
	variants []selection.Variant

	// target is the longest time from a query's arrival to its answer.
	target  float64
	workers int
}

// stream holds the arrivals of queries, and the number of arrivals for the load monitor.
type stream struct {
	// times are the arrivals, ascending.
	times []float64

	// came is the number of arrivals before each whole millisecond, or nil if the load is known.
	came []int

	// known is the load, if it is known.
	known float64
}

// window is the time over which the load monitor averages (section 6).
const window = 500

// load returns the load monitor's value. Before the first whole window it returns infinity, so that
// any load is allowed for.
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

// constant returns queries at a constant load, which the workers know. They are gamma arrivals with
// a coefficient of variation, 1 for a Poisson process.
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

// changing returns queries of a Poisson process whose load changes at fixed intervals. Only the
// load monitor knows the load.
func changing(loads []float64, seconds float64, r *rand.Rand) *stream {
	// Each interval has a Poisson process of its own load.
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

// outcome counts queries and what became of them.
type outcome struct {
	// queries counts all queries, and inTime those that were answered within the target.
	queries, inTime int

	// accuracy is the sum over the queries in time.
	accuracy float64
}

// mean returns the accuracy of a query in time, and violations the fraction of queries that are
// late or dropped. These are the metrics of section 7.
func (o *outcome) mean() float64       { return o.accuracy / float64(max(o.inTime, 1)) }
func (o *outcome) violations() float64 { return 1 - float64(o.inTime)/float64(max(o.queries, 1)) }

// answer counts a query with its arrival, the time of its answer, and the variant that answered it.
func (o *outcome) answer(v *selection.Variant, came, at, target float64) {
	o.queries++
	if at <= came+target {
		o.inTime++
		o.accuracy += v.Accuracy
	}
}

// dealt serves queries that are dealt out to the workers in turn. Each worker follows the policy
// for its own queue (section 3.2), so workers do not affect each other.
func (f *fleet) dealt(s *stream, policy func(load float64) *selection.Policy) (o outcome) {
	for w := range min(f.workers, len(s.times)) {
		free := 0.0
		// n is the number of queued queries, and last the first query that has not arrived.
		n, last := 0, w
		for first := w; first < len(s.times); {
			// A decision is due when the worker is free and a query is queued.
			now := max(free, s.times[first])
			for ; last < len(s.times) && s.times[last] <= now; last += f.workers {
				n++
			}
			p := policy(s.load(now))
			variant, batch := p.Choose(n, s.times[first]+f.target-now)
			// The worker's queries are every f.workers-th of the stream.
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

// setting is a decision of the baselines for a load: the variant that all workers use, and the
// largest batch.
type setting struct{ variant, batch int }

// central serves queries from one queue. As soon as a worker is free, it takes all queued queries
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
		// The first free worker takes the batch.
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

// rate returns the queries a second that all workers sustain in full batches of a setting.
func (f *fleet) rate(c setting) float64 {
	return 1000 * float64(c.batch*f.workers) / f.variants[c.variant].Latency[c.batch-1]
}

// fallback returns the baselines' setting for a load that no variant sustains.
func (f *fleet) fallback() setting { return setting{0, len(f.variants[0].Latency)} }

// spare is the factor by which a variant must exceed the load under Jellyfish+, from the authors'
// program.
const spare = 1.05

// jellyfish returns Jellyfish+'s setting for a load: the most accurate variant that sustains more
// than the load in batches of at most half the target, and its largest such batch.
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

// ModelSwitching measures at loads that are switchingStep apart. It allows switchingLate late
// queries, because the 99th percentile of the response time must be within the target.
const (
	switchingStep = 100
	switchingLate = 0.01
)

// switching measures variants at loads from low to high, each for a number of seconds. It returns
// the function with ModelSwitching's setting for a load: the most accurate variant whose 99th
// percentile of response time is within the target. The largest batch takes at most half of the
// target, or at most all of it, whichever has fewer late queries.
func (f *fleet) switching(low, high, cv float64, seconds func(load float64) float64, r *rand.Rand) func(load float64) setting {
	var table []setting
	// A variant that does not sustain a load does not sustain a higher one.
	at := len(f.variants) - 1
	for load := low; load < high+switchingStep; load += switchingStep {
		s := constant(load, seconds(load), cv, r)
		// Loads rise, so that the search continues with the variant of the load before.
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

// largest returns the largest batch of a variant that takes at most the given time, or 0.
func (f *fleet) largest(variant int, most float64) int {
	l := f.variants[variant].Latency
	n, _ := slices.BinarySearch(l, math.Nextafter(most, math.Inf(1)))
	return n
}
