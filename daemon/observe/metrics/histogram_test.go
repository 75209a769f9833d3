package metrics

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is observed, the buckets are those that one would count by hand.
func TestHistogramCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := rapid.SliceOfNDistinct(rapid.Float64Range(-10, 10), 1, 8, rapid.ID).Draw(t, "bounds")
		slices.Sort(bounds)
		values := rapid.SliceOf(rapid.Float64Range(-12, 12)).Draw(t, "values")
		h := distribution{bounds: bounds}
		sum := 0.0
		for _, v := range values {
			h.observe(v)
			sum += v
		}
		count, buckets := h.cumulative()
		if int(count) != len(values) || h.sum != sum || len(buckets) != len(bounds) {
			t.Fatalf("%d values, sum %v, %d buckets", count, h.sum, len(buckets))
		}
		for _, b := range bounds {
			want := 0
			for _, v := range values {
				if v <= b {
					want++
				}
			}
			if int(buckets[b]) != want {
				t.Fatalf("%d do not exceed %v, want %d", buckets[b], b, want)
			}
		}
	})
}

func TestBoundsAscend(t *testing.T) {
	for name, bounds := range map[string][]float64{
		"latency": latencyBounds, "target": targetBounds, "round": roundBounds, "room": roomBounds,
		"span": spanBounds, "ratio": ratioBounds, "error": errorBounds, "margin": marginBounds,
	} {
		if !slices.IsSorted(bounds) || len(slices.Compact(slices.Clone(bounds))) != len(bounds) {
			t.Errorf("%s: bounds %v, want them ascending and unique", name, bounds)
		}
		if len(bounds) > maxBounds {
			t.Errorf("%s: %d bounds, at most %d", name, len(bounds), maxBounds)
		}
	}
}
