package load

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		n, most int64
		drawn   string
	}{
		{0, 100, ""},
		{1, 1_000_000, "▏"},
		{100, 100, strings.Repeat("█", histogramWidth)},
		{50, 100, strings.Repeat("█", histogramWidth/2)},
		{7, 8 * histogramWidth, "▉"},
	} {
		got := bar(tc.n, tc.most)
		if strings.TrimRight(got, " ") != tc.drawn || utf8.RuneCountInString(got) != histogramWidth {
			t.Errorf("%d of %d is %q, want %q in %d columns", tc.n, tc.most, got, tc.drawn, histogramWidth)
		}
	}
}

func TestHistogramCountsAll(t *testing.T) {
	for _, values := range [][]time.Duration{
		{0},
		{ms, ms, ms},
		{time.Nanosecond, ms, time.Hour},
		{3 * ms, 5 * ms, 8 * ms, 13 * ms, 21 * ms, 34 * ms},
	} {
		l := newLatencies()
		for _, v := range values {
			l.record(v)
		}
		var b strings.Builder
		writeHistogram(&b, l)
		total := 0
		for line := range strings.Lines(b.String()) {
			fields := strings.Fields(line)
			n := 0
			if len(fields) > 2 {
				fmt.Sscan(fields[len(fields)-1], &n)
			}
			total += n
		}
		if total != len(values) || strings.Contains(b.String(), "NaN") {
			t.Errorf("%v: %d counted in\n%s", values, total, b.String())
		}
	}
}

func TestErrorsAreSortedByCount(t *testing.T) {
	var b strings.Builder
	writeErrors(&b, "errors", map[string]int64{"b": 2, "a": 2, "c": 30})
	if want := "errors: c 30, a 2, b 2\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func ExampleScore() {
	met := true
	fmt.Println(&Score{Metric: "latency", Percentile: 90, Value: 12.34, Unit: "ms", Met: &met, Note: mlperfNote})
	// Output: p90 latency: 12.34 ms, target met (MLPerf-like, not an MLPerf result)
}
