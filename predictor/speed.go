package predictor

import (
	"math"
	"slices"
	"time"
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

	// relaxRuns is how many runs of other sources may pass without one of this before
	// half of its slowness is forgotten, relaxAfter how much time. Otherwise groups
	// that were slow for a moment might never be tried again.
	relaxRuns  = 64
	relaxAfter = 4 * time.Second
)

// speed follows how fast the device is as against what a source predicts.
//
// The latest runs wait in a ring before they go to the windows, until it is
// known whether the device has changed: those of a slower device must not
// widen the margin of what it was before, nor of what it is then.
type speed struct {
	source source

	// start holds the quantiles of the source's predictions from before anything was
	// observed, level measured/predicted of the device lately.
	start Quantiles
	level float64

	// recent is a ring of count runs; the next one goes to next.
	recent [recentRuns]run
	count  int
	next   int

	// settling counts the runs until the level is measured again.
	settling int

	// ran is when the last run ended, or the level was last relaxed, idle counts the
	// runs of other sources since then.
	ran  time.Duration
	idle int

	all window

	// other is for the shapes that were not seen: it has no runs.
	other shape
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
	if s.all.len() >= enoughRuns {
		return s.all.margin()
	}
	m := margin{middle: s.start.P50, usual: s.start.P99, high: s.start.P99}
	if s.all.len() > 0 {
		all := s.all.margin()
		m.usual, m.high = max(m.usual, all.usual), max(m.high, all.high)
	}
	return m
}

// push takes a run in and returns the one that has waited for long enough.
func (s *speed) push(r run) (old run, ok bool) {
	s.ran, s.idle = r.at, 0
	old, ok = s.recent[s.next], s.count == recentRuns
	s.recent[s.next] = r
	s.next = (s.next + 1) % recentRuns
	s.count = min(s.count+1, recentRuns)
	return old, ok
}

// follow sets the level by how the latest runs differ from what was expected.
func (s *speed) follow() {
	if r := &s.recent[(s.next+recentRuns-1)%recentRuns]; r.expected > 0 {
		switch residual := s.residual(r); { // one that is exact moves nothing
		case residual > 1:
			s.scale(1 + nudge)
		case residual < 1:
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
		spread = quantile(s.all.sorted, 0.9) / quantile(s.all.sorted, 0.5)
	}
	return max(leastChange, changeSpread*(spread-1))
}

func (s *speed) scale(by float64) { s.level = min(max(s.level*by, 1/maxLevel), maxLevel) }

// relax counts a run of another source, and forgets half of the slowness if this has
// not run for long.
func (s *speed) relax(now time.Duration) {
	if s.idle++; s.idle <= relaxRuns && now-s.ran < relaxAfter {
		return
	}
	s.ran, s.idle = now, 0
	if s.level > 1 {
		s.level = math.Sqrt(s.level)
		s.count, s.next, s.settling = 0, 0, 0
	}
}

// windowRuns is how many runs a window keeps. Of so many, the second largest
// is what 99 of 100 stay within.
const windowRuns = 200

// run holds how far one measurement was from what was predicted.
type run struct {
	shape *shape
	at    time.Duration

	// ratio is measured/predicted before any correction, 0 of one that counts no more.
	ratio   float64
	outlier bool

	// part is the share of its longest model that ran, in time.
	part float64

	// expected is the ratio of the shape at level 1 when it ran; 0 if the run does not
	// show how fast the device is.
	expected float64

	// level is that of the device when it ran; 0 for what it is now.
	level float64

	// rawError is |predicted/measured - 1| before any correction, error the same of
	// the estimate that was given.
	rawError float64
	error    float64
}

// window keeps the ratios of the latest runs.
type window struct {
	// runs are a ring once there are windowRuns; sorted are the ratios of those that
	// count.
	runs   []run
	oldest int
	sorted []float64

	// aged is how many of the oldest runs are older than outlierAge, outliers how many
	// outliers count, and row how many of the latest runs, without a break, are some.
	aged     int
	outliers int
	row      int
}

// len returns how many runs count.
func (w *window) len() int { return len(w.sorted) }

// reset forgets all runs. It allocates what the window will ever need.
func (w *window) reset() {
	if w.runs == nil {
		w.runs, w.sorted = make([]run, 0, windowRuns), make([]float64, 0, windowRuns)
	}
	*w = window{runs: w.runs[:0], sorted: w.sorted[:0]}
}

// add keeps a run and forgets the oldest if there are too many.
func (w *window) add(r run) {
	r.shape = nil
	if len(w.runs) < windowRuns {
		w.runs = append(w.runs, r)
	} else {
		w.drop(&w.runs[w.oldest])
		w.runs[w.oldest] = r
		w.oldest = (w.oldest + 1) % windowRuns
		w.aged = max(w.aged-1, 0)
	}
	if r.outlier {
		w.outliers++
	}
	at, _ := slices.BinarySearch(w.sorted, r.ratio)
	w.sorted = slices.Insert(w.sorted, at, r.ratio)
}

// age forgets the outliers that are too old by now, and returns how many runs count.
func (w *window) age(now time.Duration) int {
	for ; w.aged < len(w.runs); w.aged++ {
		r := &w.runs[(w.oldest+w.aged)%len(w.runs)]
		if now-r.at < outlierAge {
			break
		}
		if r.outlier {
			w.drop(r)
		}
	}
	return w.len()
}

// drop takes a run out of those that count.
func (w *window) drop(r *run) {
	if r.ratio == 0 {
		return
	}
	at, _ := slices.BinarySearch(w.sorted, r.ratio)
	w.sorted = slices.Delete(w.sorted, at, at+1)
	if r.ratio = 0; r.outlier {
		w.outliers--
	}
}

// margin returns the quantiles of the runs, of which there must be some. Outliers are
// taken to be the largest.
func (w *window) margin() margin {
	usual := w.sorted[:max(w.len()-w.outliers, 1)]
	return margin{middle: quantile(w.sorted, 0.5), usual: quantile(usual, 0.99), high: quantile(w.sorted, 0.99)}
}

// ratios returns those of the runs that are no outliers, the oldest first.
func (w *window) ratios() []float64 {
	values := make([]float64, 0, len(w.runs))
	for i := range w.runs {
		if r := &w.runs[(w.oldest+i)%len(w.runs)]; !r.outlier {
			values = append(values, r.ratio)
		}
	}
	return values
}

// quantile returns the order statistic that is not below the quantile even if
// one more were above it; of few, the largest.
func quantile(sorted []float64, q float64) float64 {
	n := len(sorted)
	return sorted[min(max(int(math.Ceil(q*float64(n+1))), 1), n)-1]
}

// quantiles returns those of the ratios at a level.
func (w *window) quantiles(level float64) Quantiles {
	if len(w.sorted) == 0 {
		return Quantiles{}
	}
	at := func(q float64) float64 { return quantile(w.sorted, q) * level }
	return Quantiles{P01: w.sorted[(w.len()-1)/100] * level, P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99)}
}
