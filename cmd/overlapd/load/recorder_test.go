package load

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestRecorderKeepsTheWarmUpApart(t *testing.T) {
	r := newRecorder(10 * ms)
	r.add(&outcome{due: -5 * ms, sent: -5 * ms, done: ms})
	r.add(&outcome{due: -ms, sent: -ms, done: ms, reason: "timeout"})
	r.add(&outcome{due: 0, sent: 0, done: 4 * ms})
	r.add(&outcome{due: 0, sent: 0, done: 40 * ms})
	w, m := r.mu.warmup, r.mu.measured
	if w.requests != 2 || w.errors["timeout"] != 1 || m.requests != 2 || len(m.errors) != 0 {
		t.Errorf("warm-up %+v, measured %+v", w, m)
	}
	if m.good != 1 || m.lastAnswer != 40*ms || m.latency.max != 40*ms {
		t.Errorf("%d good, last answer at %s, max %s; want 1, 40ms, 40ms", m.good, m.lastAnswer, m.latency.max)
	}
	if n, failed := r.counts(); n != 4 || failed != 1 {
		t.Errorf("%d requests and %d errors, want 4 and 1", n, failed)
	}
}

func TestLatencyCountsFromWhenDue(t *testing.T) {
	m := newTally()
	m.add(0, &outcome{due: 0, sent: 9 * ms, done: 10 * ms, timed: true, busy: true})
	m.add(0, &outcome{due: 0, sent: 2 * ms, done: 3 * ms, timed: true})
	m.add(0, &outcome{due: 0, sent: ms / 2, done: 3 * ms, timed: true})
	if m.latency.max != 10*ms || m.lag.max != 9*ms || m.wake.max != 2*ms {
		t.Errorf("latency %s, lag %s, wake %s; want 10ms, 9ms, 2ms", m.latency.max, m.lag.max, m.wake.max)
	}
	if m.late != 2 || m.lateBusy != 1 {
		t.Errorf("%d late, %d of them busy; want 2 and 1", m.late, m.lateBusy)
	}
}
