package load

import (
	"sync"
	"time"
)

const (
	// lateAfter is how much later than due a request must have been sent to be
	// reported as late.
	lateAfter = time.Millisecond

	// maxReasons limits the reasons that are told apart; what comes later is
	// counted as otherReason.
	maxReasons  = 64
	otherReason = "other"
)

// outcome is what became of one request. Times are those of the run's clock.
type outcome struct {
	due    time.Duration
	sent   time.Duration
	done   time.Duration
	timed  bool   // due was fixed beforehand, so sending may have been late
	busy   bool   // no connection was free when it was due
	reason string // of the error, "" if it was answered
}

// tally is what was measured of one phase of the load on one service.
type tally struct {
	requests   int64
	good       int64 // answered inside the target
	timed      int64
	late       int64
	lateBusy   int64
	errors     map[string]int64
	latency    *latencies    // of answers, or of volleys answered whole
	lag        *latencies    // sent − due
	wake       *latencies    // the part of lag that is the generator's own
	lastAnswer time.Duration // when it came
	failed     int64
}

func newTally() *tally {
	return &tally{
		errors:  map[string]int64{},
		latency: newLatencies(),
		lag:     newLatencies(),
		wake:    newLatencies(),
	}
}

func (t *tally) fail(reason string, n int64) {
	if _, ok := t.errors[reason]; !ok && len(t.errors) >= maxReasons {
		reason = otherReason
	}
	t.errors[reason] += n
	t.failed += n
}

// sent accounts for how late a request went out.
func (t *tally) sent(o *outcome) {
	if !o.timed {
		return
	}
	lag := o.sent - o.due
	t.timed++
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

// add accounts for requests that were sent together; their latency is that of
// the slowest, and it counts only if all were answered.
func (t *tally) add(target time.Duration, together []outcome) {
	var slowest time.Duration
	ok := true
	for i := range together {
		o := &together[i]
		t.requests++
		t.sent(o)
		if o.reason != "" {
			t.fail(o.reason, 1)
			ok = false
			continue
		}
		slowest = max(slowest, o.done-o.due)
		t.lastAnswer = max(t.lastAnswer, o.done)
	}
	if !ok {
		return
	}
	t.latency.record(slowest)
	if slowest <= target {
		t.good += int64(len(together))
	}
}

func (t *tally) merge(other *tally) {
	t.requests += other.requests
	t.good += other.good
	t.timed += other.timed
	t.late += other.late
	t.lateBusy += other.lateBusy
	for reason, n := range other.errors {
		t.fail(reason, n)
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

// add accounts for requests that were sent together. Those due before the time
// 0 belong to the warm-up.
func (r *recorder) add(together []outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.mu.measured
	if together[0].due < 0 {
		t = r.mu.warmup
	}
	t.add(r.target, together)
}

// counts returns what a progress line shows.
func (r *recorder) counts() (requests, failed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, m := r.mu.warmup, r.mu.measured
	return w.requests + m.requests, w.failed + m.failed
}
