package predictor

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// A window keeps the latest runs in order; what counts of them, sorted, is without the
// outliers that are too old, and what is stored of them without any.
func TestWindowIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		w.reset()
		values := rapid.SliceOfN(rapid.SampledFrom([]float64{0.5, 0.9, 1, 1.1, 3}), 1, 3*windowRuns).Draw(t, "ratios")
		every := rapid.IntRange(1, 5).Draw(t, "outliers")
		for i, v := range values {
			w.add(run{ratio: v, at: time.Duration(i), outlier: i%every == 1})
		}
		now := rapid.IntRange(0, len(values)).Draw(t, "now")
		if w.age(time.Duration(now) + outlierAge); w.aged > len(w.runs) {
			t.Fatalf("%d of %d runs are old", w.aged, len(w.runs))
		}
		var want, usual []float64
		outliers := 0
		for i := max(0, len(values)-windowRuns); i < len(values); i++ {
			outlier := i%every == 1
			if outlier && i <= now {
				continue
			}
			if outlier {
				outliers++
			} else {
				usual = append(usual, values[i])
			}
			want = append(want, values[i])
		}
		if w.outliers != outliers || w.len() != len(want) {
			t.Fatalf("%d of %d are outliers, want %d of %d", w.outliers, w.len(), outliers, len(want))
		}
		if len(want) == 0 {
			return
		}
		if diff := cmp.Diff(usual, w.ratios(), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), w.sorted); diff != "" {
			t.Fatal(diff)
		}
		q := w.quantiles(1)
		if list := []float64{q.P01, q.P50, q.P90, q.P95, q.P99}; !slices.IsSorted(list) || q.P01 < slices.Min(want) || q.P99 > slices.Max(want) {
			t.Fatalf("quantiles %v of %v", list, want)
		}
	})
}

func TestQuantileIsConservative(t *testing.T) {
	var w window
	w.reset()
	for i := range windowRuns {
		w.add(run{ratio: float64(i + 1)})
		if n := i + 1; n < 100 && quantile(w.sorted, 0.99) != float64(n) {
			t.Errorf("of %d runs it is %v, want the largest", n, quantile(w.sorted, 0.99))
		}
	}
	for q, want := range map[float64]float64{0.99: windowRuns - 1, 0.5: 101, 0: 1, 1: windowRuns} {
		if got := quantile(w.sorted, q); got != want {
			t.Errorf("quantile %v of 1 to %d: %v, want %v", q, windowRuns, got, want)
		}
	}
}
