package stats

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// At least a part q of the values do not exceed the quantile, and less than
// that do not exceed what comes before it.
func TestQuantileIsTheNearestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		q := float64(rapid.IntRange(1, 99).Draw(t, "percent")) / 100
		sorted := make([]time.Duration, n)
		for i := range sorted {
			sorted[i] = time.Duration(i)
		}
		got := Quantile(sorted, q)
		if float64(got+1) < q*float64(n) || float64(got) >= q*float64(n)+1e-9 {
			t.Errorf("the %v quantile of %d is number %d", q, n, got)
		}
	})
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		list []float64
		q    float64
		want float64
	}{
		{nil, 0.5, 0}, {[]float64{7}, 0.99, 7}, {[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2}, 0.25, 1}, {[]float64{1, 2}, 0.5, 1}, {[]float64{1, 2}, 0, 1}, {[]float64{1, 2}, 1, 2},
	} {
		if got := Quantile(c.list, c.q); got != c.want {
			t.Errorf("quantile %v of %v is %v, want %v", c.q, c.list, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[time.Duration][]time.Duration{0: nil, 3: {3}, 5: {9, 5, 1}, 4: {7, 1, 9, 2}} {
		before := slices.Clone(values)
		if got := Median(values); got != want || !slices.Equal(values, before) {
			t.Errorf("%v: %d, and left %v", before, got, values)
		}
	}
	if got := Median([]float64{2, 1}); got != 1.5 {
		t.Errorf("of 1 and 2: %v", got)
	}
}

func TestMeanAndDeviation(t *testing.T) {
	for _, c := range []struct {
		values          []float64
		mean, deviation float64
	}{{nil, 0, 0}, {[]float64{4}, 4, 0}, {[]float64{1, 2, 3}, 2, 1}, {[]float64{0, 2}, 1, math.Sqrt2}} {
		if m, d := Mean(c.values), Deviation(c.values); m != c.mean || math.Abs(d-c.deviation) > 1e-15 {
			t.Errorf("%v: mean %v, deviation %v", c.values, m, d)
		}
	}
}

func TestDigits(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "496600": 496_612.3, "12.35": 12.3456, "0.001235": 0.00123456, "-1235": -1234.6, "1": 1, "NaN": math.NaN(), "1e-320": 1e-320} {
		if got := Digits(4, v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
