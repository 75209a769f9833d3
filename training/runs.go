package training

import (
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/stats"
)

// micros returns a time in microseconds, kept within what a row may hold.
func micros(t time.Duration) float64 {
	return min(max(float64(t)/float64(time.Microsecond), 1e-3), MaxMicros)
}

// newRow returns the row of a group from the microseconds of its runs.
func newRow(g models.Group, runs []float64) Row {
	return Row{Group: g, Repeats: len(runs), Median: stats.Median(runs), Mean: stats.Mean(runs), Std: stats.Deviation(runs)}
}

// relativeError estimates the standard error of the median of some runs,
// relative to it. It goes by the median distance from the median, so that one
// hiccup does not ask for more runs.
func relativeError(runs []float64) float64 {
	median := stats.Median(runs)
	distances := make([]float64, len(runs))
	for i, v := range runs {
		distances[i] = math.Abs(v - median)
	}
	const (
		sigma    = 1.4826 // of a normal distribution, in median distances
		ofMedian = 1.2533 // standard error of its median, in those of its mean
	)
	return ofMedian * sigma * stats.Median(distances) / math.Sqrt(float64(len(runs))) / median
}
