package predictor

import (
	"math"
	"slices"
	"time"
)

const (
	// recentRuns is the number of runs that measure the speed of the device. A change is noticed
	// once agreeing of them show it, and is measured again once all of them do. A few deviating
	// runs have no effect.
	recentRuns = 9
	agreeing   = 6

	// nudge is the fraction by which each run moves the level in its direction. It follows slow
	// drift, and corrects the rest of a change that was measured from few runs. It is small
	// enough to be insensitive to interference.
	nudge = 0.002

	// leastChange is the relative change of speed that is noticed. The windows absorb smaller
	// ones.
	leastChange = 0.08

	// changeSpread is the same limit relative to the spread of nine in ten runs, because the
	// median of a few runs has a spread as well.
	changeSpread = 1.2

	// maxLevel limits how much faster or slower a device may become.
	maxLevel = 16.0

	// After relaxRuns runs of other sources, or relaxAfter, without a run of this source, half of
	// its slowdown is discarded. Otherwise groups that were slow for a moment might never be
	// tried again.
	relaxRuns  = 64
	relaxAfter = 4 * time.Second
)

// speed tracks the speed of the device relative to the predictions of a source.
//
// The latest runs stay in a ring before they enter the windows, until it is clear whether the
// device has changed. The runs of a slower device must not widen the margin of the earlier
// speed, nor those of the earlier speed the margin of the later.
type speed struct {
	source source

	// start holds the error quantiles of the source before any observation. level is the current
	// measured/predicted of the device.
	start Quantiles
	level float64

	// recent is a ring of count runs, and next is the index of the next one.
	recent [recentRuns]run
	count  int
	next   int

	// settling counts down the runs until the level is measured again.
	settling int

	// ran is when the last run ended or the level was last relaxed. idle counts the runs of other
	// sources since then.
	ran  time.Duration
	idle int

	// all is the window of the runs of all shapes.
	all window

	// other stands for the shapes without runs. It only caches their margin.
	other shape
}

func (s *speed) reset(start Quantiles) {
	source := s.source
	w := s.all
	w.reset()
	*s = speed{source: source, start: start, level: 1, all: w}
}

// margin returns the margin of shapes without a window of their own. While there are few runs,
// it is the more conservative of the observed and the initial margin.
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

// push adds a run to the ring and returns the one that it displaces.
func (s *speed) push(r run) (old run, ok bool) {
	s.ran, s.idle = r.at, 0
	old, ok = s.recent[s.next], s.count == recentRuns
	s.recent[s.next] = r
	s.next = (s.next + 1) % recentRuns
	s.count = min(s.count+1, recentRuns)
	return old, ok
}

// follow updates the level by how the latest runs deviate from what was expected.
func (s *speed) follow() {
	if r := &s.recent[(s.next+recentRuns-1)%recentRuns]; r.expected > 0 {
		// An exact run leaves the level unchanged.
		switch residual := s.residual(r); {
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

// residual returns the ratio of a run to what its shape and the level of the device predict.
func (s *speed) residual(r *run) float64 { return r.ratio / (s.level * r.expected) }

// change sets a new level, which is measured again once all recent runs are from after the change.
// Runs that are nearer to the old level stay assigned to it.
func (s *speed) change(by float64) {
	// The geometric mean separates the two levels.
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

// leastChange returns the relative change that is noticed, given the spread of the runs.
func (s *speed) leastChange() float64 {
	spread := s.start.P90 / s.start.P50
	if s.all.len() >= enoughRuns {
		spread = quantile(s.all.sorted, 0.9) / quantile(s.all.sorted, 0.5)
	}
	return max(leastChange, changeSpread*(spread-1))
}

func (s *speed) scale(by float64) { s.level = min(max(s.level*by, 1/maxLevel), maxLevel) }

// relax counts a run of another source. If this source has not run for long, it discards half
// of the slowdown, on a logarithmic scale.
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

// windowRuns is the number of runs in a window. Of that many, the p99 is the second largest, so one
// extreme run does not set it.
const windowRuns = 200

// run is the deviation of one measurement from its prediction.
type run struct {
	shape *shape
	at    time.Duration

	// ratio is measured/predicted before any correction, or 0 for a run that no longer counts.
	ratio   float64
	outlier bool

	// part is the fraction of the group's longest model that ran, in time.
	part float64

	// expected is the ratio of the shape at level 1 when it ran. It is 0 if the run says nothing
	// about the speed of the device.
	expected float64

	// level is the level of the device when it ran, or 0 for the current level.
	level float64

	// rawError is |predicted/measured - 1| before any correction, and error the same for the
	// estimate that was given.
	rawError float64
	error    float64
}

// window holds the ratios of the latest runs.
type window struct {
	// runs is a ring once it has windowRuns elements. sorted holds the ratios of the runs that
	// count.
	runs   []run
	oldest int
	sorted []float64

	// aged is the number of the oldest runs that are older than outlierAge. outliers counts the
	// outliers that count. row is the number of consecutive outliers up to the latest run.
	aged     int
	outliers int
	row      int
}

// len returns the number of runs that count.
func (w *window) len() int { return len(w.sorted) }

// reset discards all runs. It allocates all memory the window will need.
func (w *window) reset() {
	if w.runs == nil {
		w.runs, w.sorted = make([]run, 0, windowRuns), make([]float64, 0, windowRuns)
	}
	*w = window{runs: w.runs[:0], sorted: w.sorted[:0]}
}

// add adds a run and displaces the oldest if the window is full.
func (w *window) add(r run) {
	// The window must not keep a discarded shape alive.
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

// age discards outliers older than outlierAge, and returns the number of runs that count.
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

// drop removes a run from those that count.
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

// margin returns the quantiles of the runs. There must be at least one. usual treats the
// outliers as the largest values.
func (w *window) margin() margin {
	usual := w.sorted[:max(w.len()-w.outliers, 1)]
	return margin{middle: quantile(w.sorted, 0.5), usual: quantile(usual, 0.99), high: quantile(w.sorted, 0.99)}
}

// ratios returns the ratios of the runs that are not outliers, the oldest first.
func (w *window) ratios() []float64 {
	values := make([]float64, 0, len(w.runs))
	for i := range w.runs {
		if r := &w.runs[(w.oldest+i)%len(w.runs)]; !r.outlier {
			values = append(values, r.ratio)
		}
	}
	return values
}

// quantile returns the order statistic that would still cover the quantile if one more value were
// above it. For few values, that is the largest.
func quantile(sorted []float64, q float64) float64 {
	n := len(sorted)
	return sorted[min(max(int(math.Ceil(q*float64(n+1))), 1), n)-1]
}

// quantiles returns the quantiles of the ratios at the given level.
func (w *window) quantiles(level float64) Quantiles {
	if len(w.sorted) == 0 {
		return Quantiles{}
	}
	at := func(q float64) float64 { return quantile(w.sorted, q) * level }
	return Quantiles{P01: w.sorted[(w.len()-1)/100] * level, P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99)}
}
