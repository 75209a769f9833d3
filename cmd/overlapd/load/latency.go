package load

import (
	"time"

	hdrhistogram "github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of what is recorded: three digits between them, so that a percentile
// is off by at most 0.1 %. A longer latency is recorded as maxLatency.
const (
	minLatency    = time.Microsecond
	maxLatency    = 10 * time.Minute
	latencyDigits = 3
)

// latencies is a histogram of durations that also knows their exact extremes
// and sum.
type latencies struct {
	hist     *hdrhistogram.Histogram
	min, max time.Duration
	sum      time.Duration
}

func newLatencies() *latencies {
	return &latencies{hist: hdrhistogram.New(int64(minLatency), int64(maxLatency), latencyDigits)}
}

func (l *latencies) record(d time.Duration) {
	d = min(max(d, 0), maxLatency)
	if l.count() == 0 || d < l.min {
		l.min = d
	}
	l.max = max(l.max, d)
	l.sum += d
	// An error means out of bounds, which d is not.
	_ = l.hist.RecordValue(int64(d))
}

func (l *latencies) merge(other *latencies) {
	if other.count() == 0 {
		return
	}
	if l.count() == 0 || other.min < l.min {
		l.min = other.min
	}
	l.max = max(l.max, other.max)
	l.sum += other.sum
	l.hist.Merge(other.hist)
}

func (l *latencies) count() int64 { return l.hist.TotalCount() }

// percentile returns a value within the exact extremes, 0 if there is none.
func (l *latencies) percentile(p float64) time.Duration {
	if l.count() == 0 {
		return 0
	}
	return min(max(time.Duration(l.hist.ValueAtPercentile(p)), l.min), l.max)
}

func (l *latencies) mean() time.Duration {
	if l.count() == 0 {
		return 0
	}
	return l.sum / time.Duration(l.count())
}

func (l *latencies) summary() Latency {
	return Latency{
		P50:  milliseconds(l.percentile(50)),
		P90:  milliseconds(l.percentile(90)),
		P99:  milliseconds(l.percentile(99)),
		P999: milliseconds(l.percentile(99.9)),
		Max:  milliseconds(l.max),
		Mean: milliseconds(l.mean()),
	}
}

// milliseconds returns d with the precision of the clock that is worth showing.
func milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Nanosecond)) / float64(time.Millisecond)
}
