package load

import (
	"sync"
	"time"

	hdrhistogram "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/overlapd/overlapd/internal/stats"
)

// lateAfter is how much later than due a request must have been sent to be
// reported as late.
const lateAfter = time.Millisecond

// outcome is what became of one request. Times are those of the run's clock.
type outcome struct {
	due    time.Duration
	sent   time.Duration
	done   time.Duration
	timed  bool   // due was fixed beforehand, so sending may have been late
	busy   bool   // no connection was free when it was due
	reason string // why it failed, "" if it was answered
}

// tally is what was measured of one phase of the load on one service.
type tally struct {
	requests   int64
	good       int64 // answered inside the target
	late       int64
	lateBusy   int64
	errors     map[string]int64
	latency    *latencies // answers only
	lag        *latencies // sent − due
	wake       *latencies // the part of lag that is the generator's own
	lastAnswer time.Duration
}

func newTally() *tally {
	return &tally{errors: map[string]int64{}, latency: newLatencies(), lag: newLatencies(), wake: newLatencies()}
}

// sent accounts for how late a request went out.
func (t *tally) sent(o *outcome) {
	if !o.timed {
		return
	}
	lag := o.sent - o.due
	t.lag.record(lag)
	if !o.busy {
		t.wake.record(lag)
	}
	if lag > lateAfter {
		t.late++
		if o.busy {
			t.lateBusy++
		}
	}
}

// add accounts for a request.
func (t *tally) add(target time.Duration, o *outcome) {
	t.requests++
	t.sent(o)
	if o.reason != "" {
		t.errors[o.reason]++
		return
	}
	t.lastAnswer = max(t.lastAnswer, o.done)
	latency := o.done - o.due
	t.latency.record(latency)
	if latency <= target {
		t.good++
	}
}

func (t *tally) merge(other *tally) {
	t.requests += other.requests
	t.good += other.good
	t.late += other.late
	t.lateBusy += other.lateBusy
	for reason, n := range other.errors {
		t.errors[reason] += n
	}
	t.latency.merge(other.latency)
	t.lag.merge(other.lag)
	t.wake.merge(other.wake)
	t.lastAnswer = max(t.lastAnswer, other.lastAnswer)
}

// recorder keeps the tallies of the load on one service, the warm-up apart.
type recorder struct {
	target time.Duration

	mu struct {
		sync.Mutex
		warmup   *tally
		measured *tally
	}
}

func newRecorder(target time.Duration) *recorder {
	r := &recorder{target: target}
	r.mu.warmup, r.mu.measured = newTally(), newTally()
	return r
}

// add accounts for a request. One due before the time 0 belongs to the warm-up.
func (r *recorder) add(o *outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.mu.measured
	if o.due < 0 {
		t = r.mu.warmup
	}
	t.add(r.target, o)
}

// counts returns what a progress line shows.
func (r *recorder) counts() (requests, failed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, m := r.mu.warmup, r.mu.measured
	return w.requests + m.requests, stats.Sum(w.errors) + stats.Sum(m.errors)
}

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

// percentile returns a value within the exact extremes, which are 0 if there is none.
func (l *latencies) percentile(p float64) time.Duration {
	return min(max(time.Duration(l.hist.ValueAtPercentile(p)), l.min), l.max)
}

func (l *latencies) mean() time.Duration {
	return l.sum / time.Duration(max(l.count(), 1))
}

func (l *latencies) summary() latency {
	return latency{
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
