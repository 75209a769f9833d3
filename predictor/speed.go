package predictor

import (
	"math"
	"slices"
)

const (
	// recentRuns is how many runs the speed of the device is measured by. One that
	// changes is noticed once agreeing of them have run, and measured again
	// once all have. A few that are off mean nothing.
	recentRuns = 9
	agreeing   = 6

	// nudge is by which part each run moves the level towards itself. It
	// follows a slow drift, and what is left of a change that was measured
	// by few runs. It is small enough for hiccups not to matter.
	nudge = 0.002

	// leastChange is by which part the device must become faster or slower
	// to be noticed. Less is left to the windows.
	leastChange = 0.08

	// changeSpread is the same in proportion to how far nine of ten runs
	// are off, since the median of a few runs is off as well.
	changeSpread = 1.2

	// maxLevel bounds how much slower or faster a device may become.
	maxLevel = 16.0

	// relaxAfter is how many runs of other sources may pass without one of
	// this before half of its slowness is forgotten. Otherwise groups that
	// were slow for a moment might never be tried again.
	relaxAfter = 64
)

// speed follows how fast the device is as against what a source predicts.
//
// The latest runs wait in a ring before they go to the windows, until it is
// known whether the device has changed: those of a slower device must not
// widen the margin of what it was before, nor of what it is then.
type speed struct {
	source   source
	start    Quantiles // of its predictions, from before anything was observed
	level    float64   // measured/predicted of the device lately
	recent   [recentRuns]run
	count    int // in recent
	next     int // where the next goes
	settling int // runs until the level is measured again, 0 if it need not be
	idle     int // runs of other sources since the last of this
	all      window
}

func (s *speed) reset(start Quantiles) {
	source := s.source
	w := s.all
	w.reset()
	*s = speed{source: source, start: start, level: 1, all: w}
}

// margin returns that of shapes that have no window of their own. As long as
// few runs were observed it is the more cautious of them and the start.
func (s *speed) margin() margin {
	switch n := s.all.len(); {
	case n == 0:
		return margin{middle: s.start.P50, high: s.start.P99}
	case n < enoughRuns:
		return margin{middle: s.start.P50, high: max(s.start.P99, s.all.quantile(0.99))}
	}
	return margin{middle: s.all.quantile(0.5), high: s.all.quantile(0.99)}
}

// push takes a run in and returns the one that has waited for long enough.
func (s *speed) push(r run) (old run, ok bool) {
	s.idle = 0
	old, ok = s.recent[s.next], s.count == recentRuns
	s.recent[s.next] = r
	s.next = (s.next + 1) % recentRuns
	s.count = min(s.count+1, recentRuns)
	return old, ok
}

// follow sets the level by how the latest runs differ from what was expected.
func (s *speed) follow() {
	if r := s.latest(); r.expected > 0 {
		if s.residual(r) > 1 {
			s.scale(1 + nudge)
		} else {
			s.scale(1 / (1 + nudge))
		}
	}
	var list [recentRuns]float64
	residuals := list[:0]
	for i := range s.recent[:s.count] {
		if r := &s.recent[i]; r.expected > 0 {
			residuals = append(residuals, s.residual(r))
		}
	}
	if len(residuals) < agreeing {
		return
	}
	slices.Sort(residuals)
	n, few := len(residuals), len(residuals)-agreeing
	change := 1 + s.leastChange()
	switch {
	case s.settling > 0:
		if s.settling--; s.settling == 0 {
			s.scale(residuals[n/2])
		}
	case residuals[few] > change:
		s.change(residuals[few+agreeing/2])
	case residuals[agreeing-1] < 1/change:
		s.change(residuals[agreeing/2])
	}
}

func (s *speed) latest() *run { return &s.recent[(s.next+recentRuns-1)%recentRuns] }

// residual is how a run differs from what its shape leads to expect at the
// speed of the device.
func (s *speed) residual(r *run) float64 { return r.ratio / (s.level * r.expected) }

// change sets a new level, to be measured again when all recent runs are of
// it. Runs that are nearer to the old one keep that.
func (s *speed) change(by float64) {
	between := math.Sqrt(by)
	for i := range s.recent[:s.count] {
		r := &s.recent[i]
		if r.level == 0 && (s.residual(r) < between) == (by > 1) {
			r.level = s.level
		}
	}
	s.scale(by)
	s.settling = recentRuns - agreeing
}

func (s *speed) leastChange() float64 {
	spread := s.start.P90 / s.start.P50
	if s.all.len() >= enoughRuns {
		spread = s.all.quantile(0.9) / s.all.quantile(0.5)
	}
	return max(leastChange, changeSpread*(spread-1))
}

func (s *speed) scale(by float64) { s.level = min(max(s.level*by, 1/maxLevel), maxLevel) }

// relax counts a run, of whatever source.
func (s *speed) relax() {
	if s.idle++; s.idle <= relaxAfter {
		return
	}
	s.idle = 0
	if s.level > 1 {
		s.level = math.Sqrt(s.level)
		s.count, s.next, s.settling = 0, 0, 0
	}
}
