package timeline

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRecent(t *testing.T) {
	var l latencies
	if r := l.recent(); r != (Recent{}) {
		t.Errorf("of none: %+v", r)
	}
	for i := range 1000 { // the last are 745 to 1000 ms
		l.add(time.Duration(i+1)*time.Millisecond, i%4 != 0)
	}
	want := Recent{Ended: window, Missed: window / 4, P50: 872 * time.Millisecond, P99: 998 * time.Millisecond, Max: time.Second}
	if r := l.recent(); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

// Of the times, so much do not exceed a quantile, and less than that do not
// exceed what comes before it.
func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, window).Draw(t, "n")
		q := float64(rapid.IntRange(1, 99).Draw(t, "percent")) / 100
		sorted := make([]time.Duration, n)
		for i := range sorted {
			sorted[i] = time.Duration(i)
		}
		got := quantile(sorted, q)
		if float64(got+1) < q*float64(n) || float64(got) >= q*float64(n)+1e-9 {
			t.Errorf("the %v quantile of %d is number %d", q, n, got)
		}
	})
}
