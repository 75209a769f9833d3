package training

import (
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// micros returns a time in microseconds, kept within what a row may hold.
func micros(t time.Duration) float64 {
	return min(max(float64(t)/float64(time.Microsecond), 1e-3), MaxMicros)
}

// newRow returns the row of a group from the microseconds of its runs.
func newRow(g models.Group, runs []float64) Row {
	mean := 0.0
	for _, v := range runs {
		mean += v / float64(len(runs))
	}
	squares := 0.0
	for _, v := range runs {
		squares += (v - mean) * (v - mean)
	}
	std := 0.0
	if len(runs) > 1 {
		std = math.Sqrt(squares / float64(len(runs)-1))
	}
	return Row{Group: g, Repeats: len(runs), Median: medianOf(runs), Mean: mean, Std: std}
}

func medianOf(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// relativeError estimates the standard error of the median of some runs,
// relative to it. It goes by the median distance from the median, so that one
// hiccup does not ask for more runs.
func relativeError(runs []float64) float64 {
	median := medianOf(runs)
	distances := make([]float64, len(runs))
	for i, v := range runs {
		distances[i] = math.Abs(v - median)
	}
	const (
		sigma    = 1.4826 // of a normal distribution, in median distances
		ofMedian = 1.2533 // standard error of its median, in those of its mean
	)
	return ofMedian * sigma * medianOf(distances) / math.Sqrt(float64(len(runs))) / median
}

// columnMedians returns the medians over rows of equal length.
func columnMedians(rows [][]float64) []float64 {
	medians := make([]float64, len(rows[0]))
	column := make([]float64, len(rows))
	for i := range medians {
		for j, row := range rows {
			column[j] = row[i]
		}
		medians[i] = medianOf(column)
	}
	return medians
}
