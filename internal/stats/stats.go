// Package stats holds the statistics that all reports share, so that the same name means the
// same computation everywhere. [Quantile] computes every p50 and p99 in reports, status pages
// and files. [Median] summarizes repeated measurements, and [Mean] and [Deviation] go with it.
// [Gamma] draws the intervals of a generated load, and [Digits] formats a number for people.
// Any package may import it.
//
// Bounds on future runs are predictions, not summaries: package predictor computes them.
package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Quantile returns the nearest-rank quantile: the least value that at least a fraction q of all
// values do not exceed, for q in [0, 1]. It never interpolates, so a p99 is always the latency
// of a query that was measured. The values must be in ascending order. Without values, it
// returns zero.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the median of values, in any order, without modifying them. For an even number
// it is the mean of the two middle values: unlike Quantile, it estimates the center of a
// measurement and need not be one of its values. Without values, it returns zero.
func Median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Mean returns the arithmetic mean, or zero without values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// Deviation returns the standard deviation of a sample (divided by n-1), or zero for fewer than
// two values.
func Deviation(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	mean, squares := Mean(values), 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares / float64(len(values)-1))
}

// Gamma draws from a gamma distribution of the given shape and scale 1 (Marsaglia and Tsang,
// "A simple method for generating gamma variables", 2000).
func Gamma(shape float64, r *rand.Rand) float64 {
	boost := 1.0
	// The method needs a shape of at least 1. A smaller one is drawn with shape+1 and scaled.
	if shape < 1 {
		boost = math.Pow(1-r.Float64(), 1/shape)
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return boost * d * v
		}
	}
}

// Medians returns the median of each column. There must be at least one row, and all rows must
// have the same length.
func Medians[T ~int64 | ~float64](rows [][]T) []T {
	medians, column := make([]T, len(rows[0])), make([]T, len(rows))
	for i := range medians {
		for j, row := range rows {
			column[j] = row[i]
		}
		medians[i] = Median(column)
	}
	return medians
}

// Thin returns at most n elements of a list at even intervals, including the first and the
// last. If n is 1, it returns the last one.
func Thin[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	if n == 1 {
		return list[len(list)-1:]
	}
	kept := make([]T, n)
	for i := range kept {
		kept[i] = list[i*(len(list)-1)/(n-1)]
	}
	return kept
}

// Sum returns the sum of the counts in a map.
func Sum[K comparable, N ~int64 | ~uint64](counts map[K]N) (sum N) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Digits formats a number with n significant digits and without an exponent.
func Digits(n int, v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	scale := math.Pow10(n - 1 - int(math.Floor(math.Log10(math.Abs(v)))))
	if scale == 0 || math.IsInf(scale, 0) {
		// The scale over- or underflows only for values that no statistic takes.
		return strconv.FormatFloat(v, 'g', n, 64)
	}
	return strconv.FormatFloat(math.Round(v*scale)/scale, 'f', -1, 64)
}
