package predictor

import (
	"math"
	"slices"
)

// windowRuns is how many runs a window keeps. Of so many, the second largest
// is what 99 of 100 stay within.
const windowRuns = 200

// run is how far one measurement was from what was predicted.
type run struct {
	shape    *shape
	ratio    float64 // measured/predicted, where nothing has been corrected
	expected float64 // ratio of its shape at level 1 when it ran; 0 if it says nothing of the device
	level    float64 // of the device when it ran; 0 for what it is now
	rawError float64 // |predicted/measured - 1| of the same
	error    float64 // of what was answered
}

// window keeps the ratios of the latest runs.
type window struct {
	runs   []run // a ring once it is full
	oldest int
	sorted []float64 // their ratios
}

func (w *window) len() int { return len(w.runs) }

// reset forgets all runs. It allocates what the window will ever need.
func (w *window) reset() {
	if w.runs == nil {
		w.runs, w.sorted = make([]run, 0, windowRuns), make([]float64, 0, windowRuns)
	}
	w.runs, w.sorted, w.oldest = w.runs[:0], w.sorted[:0], 0
}

// add keeps a run and forgets the oldest if there are too many.
func (w *window) add(r run) {
	r.shape = nil
	if len(w.runs) < windowRuns {
		w.runs = append(w.runs, r)
	} else {
		at, _ := slices.BinarySearch(w.sorted, w.runs[w.oldest].ratio)
		w.sorted = slices.Delete(w.sorted, at, at+1)
		w.runs[w.oldest] = r
		w.oldest = (w.oldest + 1) % windowRuns
	}
	at, _ := slices.BinarySearch(w.sorted, r.ratio)
	w.sorted = slices.Insert(w.sorted, at, r.ratio)
}

// ratios returns them, the oldest first.
func (w *window) ratios() []float64 {
	values := make([]float64, 0, len(w.runs))
	for i := range w.runs {
		values = append(values, w.runs[(w.oldest+i)%len(w.runs)].ratio)
	}
	return values
}

// quantile returns the order statistic that is not below the quantile even if
// one more run were above it; of few runs, the largest.
func (w *window) quantile(q float64) float64 {
	n := len(w.sorted)
	return w.sorted[min(max(int(math.Ceil(q*float64(n+1))), 1), n)-1]
}

func (w *window) quantiles() Quantiles {
	if len(w.sorted) == 0 {
		return Quantiles{}
	}
	return Quantiles{
		P01: w.sorted[(len(w.sorted)-1)/100], P50: w.quantile(0.50), P90: w.quantile(0.90),
		P95: w.quantile(0.95), P99: w.quantile(0.99),
	}
}
