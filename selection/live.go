package selection

import (
	"math"
	"time"
)

// How a load is found out: the arrivals of a window (section 6 of the paper has 500 ms), but
// of no fewer queries than leastArrivals, within the longest window. Before anything is known
// so many are enough. As long as a window differs from the load by no more than chance, steady
// standard deviations of a Poisson process, the load is the mean of windows, as of the last
// memory: the policy for the highest of them would be less accurate than it need be.
const (
	window        = 500 * time.Millisecond
	longestWindow = 5 * time.Second
	leastArrivals = 16
	steady        = 3.0
	memory        = 4 * time.Second
)

// patience is for how long a load must have been lower than that of the policy before it
// is left for that of a lower one. That of a higher one is taken at once.
const patience = 2 * time.Second

// Live is a set of policies in use: it follows the load. It is not safe for concurrent use.
type Live struct {
	set    *Set // nil for none
	policy *Policy

	taken float64 // part of the time of the devices that others take

	arrived int           // in the window that runs
	since   time.Duration // when that began
	rate    float64       // queries a second, 0 before the first has ended
	over    time.Duration // what that is the mean of
	low     time.Duration // since when the load has been lower, 0 if it is not
}

// Use has policies followed from now on, or none.
func (l *Live) Use(s *Set) {
	if l.set, l.policy = s, nil; s != nil {
		l.policy = s.At(l.rate / (1 - l.taken))
	}
}

// Set returns the policies that are followed, nil for none.
func (l *Live) Set() *Set { return l.set }

// Policy returns the policy for the load as it is, nil for none.
func (l *Live) Policy() *Policy { return l.policy }

// Share tells which part of the time of the devices other services take. What is left of
// it bears only that part of a load, so a policy for a higher one is followed.
func (l *Live) Share(others float64) { l.taken = min(max(others, 0), 0.9) }

// Arrived tells that a query came, at a time that never goes back.
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

// consider follows the load of a window, at once upward and downward with patience.
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

// Choose returns the name of the variant for so many queries, whose first has some time
// until it is late. Without a policy, and where there is no time, it is "".
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
