package metrics

import "math"

// Histogram counts values in buckets. It is plain memory and belongs to one
// goroutine.
type Histogram struct {
	bounds []float64 // upper, ascending; never changed
	counts []uint64  // of each bucket alone; the last has what exceeds all bounds
	sum    float64
}

func newHistogram(bounds []float64) Histogram {
	return Histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// observe counts a value. What is not a number says nothing and is left out.
func (h *Histogram) observe(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

// copyTo copies the values to a histogram with the same bounds.
func (h *Histogram) copyTo(to *Histogram) {
	copy(to.counts, h.counts)
	to.sum = h.sum
}

// cumulative returns how many values there are in all, and for each bound how
// many do not exceed it, as Prometheus has them.
func (h *Histogram) cumulative() (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, n := range h.counts {
		count += n
		if i < len(h.bounds) {
			buckets[h.bounds[i]] = count
		}
	}
	return count, buckets
}

// The bounds of all histograms. Those of ratios are dense around 1, where it is
// decided whether a promise is kept.
var (
	latencyBounds = []float64{.0005, .001, .002, .005, .01, .02, .035, .05, .075, .1, .15, .2, .3, .5, .75, 1, 2, 5, 10, 30}
	targetBounds  = []float64{.05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4}
	roundBounds   = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5}
	roomBounds    = []float64{0, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	spanBounds    = []float64{1, 2, 3, 4, 6, 8, 12, 16, 32, 64}
	ratioBounds   = []float64{.5, .6, .7, .8, .85, .9, .95, .97, 1, 1.03, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4}
	errorBounds   = []float64{.01, .02, .03, .05, .075, .1, .15, .2, .3, .5, 1}
	marginBounds  = []float64{1, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4}
)
