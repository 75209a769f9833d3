package selection

import (
	"math"
	"time"
)

// How Live measures a load. It counts the arrivals in windows. A window lasts at least 500 ms, as
// in section 6 of the paper, and has at least leastArrivals queries, unless it reaches the longest
// window. The first window ends as soon as it has that many queries. If a window differs from the
// load by less than steady standard deviations of a Poisson process, the difference may be chance.
// The load then is a moving average over the last memory: following the highest window would select
// a policy that is less accurate than necessary.
const (
	window        = 500 * time.Millisecond
	longestWindow = 5 * time.Second
	leastArrivals = 16
	steady        = 3.0
	memory        = 4 * time.Second
)

// patience is the time for which the load must have been lower before Live changes to a policy for
// a lower load. It changes to one for a higher load immediately.
const patience = 2 * time.Second

// Live selects the policy of a set that suits the current load. It is not safe for concurrent use.
type Live struct {
	// set is nil if there are no policies.
	set    *Set
	policy *Policy

	// taken is the fraction of the devices' time that other services take.
	taken float64

	// arrived counts the arrivals of the current window, which began at since.
	arrived int
	since   time.Duration

	// rate is the load in queries a second, 0 before the first window has ended. over is the time
	// that it is an average of.
	rate float64
	over time.Duration

	// low is the time since which the load has been lower than the policy's, 0 if it is not.
	low time.Duration
}

// Use replaces the policies. A nil set removes them.
func (l *Live) Use(s *Set) {
	if l.set, l.policy = s, nil; s != nil {
		l.policy = s.At(l.rate / (1 - l.taken))
	}
}

// Set returns the policies in use, or nil.
func (l *Live) Set() *Set { return l.set }

// Policy returns the policy for the current load, or nil.
func (l *Live) Policy() *Policy { return l.policy }

// Share sets the fraction of the devices' time that other services take. The remaining time
// sustains only a part of a load, so Live selects a policy for a higher load.
func (l *Live) Share(others float64) { l.taken = min(max(others, 0), 0.9) }

// Arrived records the arrival of a query. Times must not decrease.
func (l *Live) Arrived(at time.Duration) {
	took := at - l.since
	l.arrived++
	enough := l.arrived >= leastArrivals && (took >= window || l.rate == 0)
	if !enough && took < longestWindow {
		return
	}
	seconds := max(took, 1).Seconds()
	rate := float64(l.arrived) / seconds
	if math.Abs(rate-l.rate) < steady*math.Sqrt(l.rate/seconds) {
		l.over = max(took, min(l.over+took, memory))
		l.rate += (rate - l.rate) * seconds / l.over.Seconds()
	} else {
		l.rate, l.over = rate, took
	}
	if l.set != nil {
		l.consider(l.since, at)
	}
	l.arrived, l.since = 0, at
}

// consider selects the policy for the load after a window: a higher one immediately, a lower one
// with patience.
func (l *Live) consider(from, to time.Duration) {
	next := l.set.At(l.rate / (1 - l.taken))
	if next.Rate < l.policy.Rate {
		if l.low == 0 {
			l.low = max(from, 1)
		}
		if to-l.low < patience {
			return
		}
	}
	l.policy, l.low = next, 0
}

// Choose returns the name of the variant for the queued queries, given the slack of the first. It
// returns "" without a policy, and if the policy drops the queries.
func (l *Live) Choose(waiting int, slack time.Duration) string {
	if l.policy == nil {
		return ""
	}
	v, _ := l.policy.Choose(waiting, float64(slack)/float64(time.Millisecond))
	if v == Dropped {
		return ""
	}
	return l.policy.Variants[v].Name
}
