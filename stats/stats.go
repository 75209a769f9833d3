// Package stats is the one place where numbers are summed up, so that what two
// commands report under one name is one thing: [Quantile] wherever a report, a
// status page or a file says p50 or p99, [Median] for the middle of repeated
// measurements, [Mean] and [Deviation] beside it. Any package may use it. What
// must hold of runs to come, as the bound of a prediction, is not summed up
// here: that is package predictor's. [Gamma] draws the times at which load comes,
// [Digits] writes a number for people.
package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Quantile returns the nearest-rank quantile: the least of the values that at
// least a part q of all values, between 0 and 1, do not exceed. It is always
// one of the values, so that a p99 is the latency of a query that there was.
// The values must be in ascending order; of none it returns zero.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle of values in any order, which it leaves as they
// are. Of an even number it is the mean of the two in the middle: it estimates
// what a measurement is around, where Quantile picks a value. Of none it is
// zero.
func Median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Mean returns the arithmetic mean, zero of no values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// Deviation returns the standard deviation of a sample (divided by n-1), zero
// of fewer than two values.
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

// Gamma draws from a gamma distribution of scale 1, after Marsaglia and Tsang,
// "A simple method for generating gamma variables" (2000).
func Gamma(shape float64, r *rand.Rand) float64 {
	boost := 1.0
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

// Medians returns the median of each column of a table that has a row at least,
// all of one length.
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

// Thin returns at most n values of a list, evenly chosen, its ends among them;
// the last one if n is 1.
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

// Sum returns the sum of counts, whatever they are of.
func Sum[K comparable, N ~int64 | ~uint64](counts map[K]N) (sum N) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Digits writes a number with so many significant digits, and as people do: without an
// exponent.
func Digits(n int, v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	scale := math.Pow10(n - 1 - int(math.Floor(math.Log10(math.Abs(v)))))
	if scale == 0 || math.IsInf(scale, 0) {
		return strconv.FormatFloat(v, 'g', n, 64) // further from 1 than anything that is counted
	}
	return strconv.FormatFloat(math.Round(v*scale)/scale, 'f', -1, 64)
}
