package metrics

import (
	"fmt"
	"testing"
	"time"
)

const ms = time.Millisecond

// sumOf returns how many values a histogram has, and their sum.
func sumOf(h *distribution) (uint64, float64) {
	n, _ := h.cumulative()
	return n, h.sum
}

func TestRecordOfGroups(t *testing.T) {
	pair := sent{Spans: 2, Predicted: 10 * ms, Bound: 12 * ms, Solo: 16 * ms, Headroom: 50 * ms, Urgent: true}
	alone := sent{Spans: 1, Predicted: 10 * ms, Bound: 10 * ms, Headroom: -ms, Urgent: true}
	for name, c := range map[string]struct {
		group    sent
		outcome  outcome
		gained   time.Duration
		lost     time.Duration
		exceeded uint64
		ratio    float64 // of the group, 0 for none
		solo     float64 // ratio of one span, 0 for none
	}{
		"faster than apart": {pair, outcome{11 * ms, 11 * ms, true}, 5 * ms, 0, 0, 1.1, 0},
		"slower than apart": {pair, outcome{20 * ms, 20 * ms, true}, 0, 4 * ms, 1, 2, 0},
		"not to its end":    {pair, outcome{20 * ms, 20 * ms, false}, 0, 0, 0, 0, 0},
		"solo unknown":      {sent{Spans: 2, Predicted: 10 * ms, Bound: 12 * ms}, outcome{20 * ms, 20 * ms, true}, 0, 0, 1, 2, 0},
		"not predicted":     {sent{Spans: 2, Solo: 16 * ms}, outcome{11 * ms, 11 * ms, true}, 5 * ms, 0, 0, 0, 0},
		"alone":             {alone, outcome{11 * ms, 9 * ms, true}, 0, 0, 0, 0, 0.9},
		"alone and late":    {alone, outcome{21 * ms, 20 * ms, true}, 0, 0, 1, 0, 2},
	} {
		r := newRecord(1)
		r.dispatch(c.group)
		r.finish(c.outcome)
		if r.gained != c.gained || r.lost != c.lost || r.exceeded != c.exceeded {
			t.Errorf("%s: gained %v, lost %v, exceeded %d", name, r.gained, r.lost, r.exceeded)
		}
		if _, sum := sumOf(&r.groups.groupRatio); sum != c.ratio {
			t.Errorf("%s: ratio %v", name, sum)
		}
		if _, sum := sumOf(&r.groups.soloRatio); sum != c.solo {
			t.Errorf("%s: ratio of one span %v", name, sum)
		}
		if n, sum := sumOf(&r.groups.round); n != 1 || sum != c.outcome.Took.Seconds() {
			t.Errorf("%s: %d rounds of %v s", name, n, sum)
		}
		if _, sum := sumOf(&r.groups.spans); sum != float64(c.group.Spans) {
			t.Errorf("%s: %v spans", name, sum)
		}
		if n, sum := sumOf(&r.groups.headroom); (n == 1) != c.group.Urgent || sum != max(c.group.Headroom, 0).Seconds() {
			t.Errorf("%s: %d headrooms of %v", name, n, sum)
		}
	}
}

// The error is that of the prediction, as the predictor's reports have it.
func TestRecordOfErrors(t *testing.T) {
	r := newRecord(0)
	r.dispatch(sent{Spans: 3, Predicted: 15 * ms, Bound: 18 * ms})
	r.finish(outcome{Took: 10 * ms, Compared: 10 * ms, Whole: true})
	if n, sum := sumOf(&r.groups.groupError); n != 1 || sum != 0.5 {
		t.Errorf("%d errors of %v", n, sum)
	}
	if n, sum := sumOf(&r.groups.margin); n != 1 || sum != 1.2 {
		t.Errorf("%d margins of %v", n, sum)
	}
}

// An outcome that nobody waits for is not counted, as of a round that could not
// be sent.
func TestRecordOfUnknownOutcome(t *testing.T) {
	r := newRecord(0)
	r.finish(outcome{Took: ms, Compared: ms, Whole: true})
	if n, _ := sumOf(&r.groups.round); n != 0 {
		t.Errorf("%d rounds", n)
	}
}

func TestRecordOfTurns(t *testing.T) {
	r := newRecord(0)
	for _, turn := range [][2]time.Duration{{1 * ms, 3 * ms}, {10 * ms, 11 * ms}, {20 * ms, 19 * ms}} {
		r.wake(turn[0])
		r.rest(turn[1])
	}
	if r.turns != 3 || r.busy != 3*ms {
		t.Errorf("%d turns, busy for %v", r.turns, r.busy)
	}
}

func TestRecordOfQueries(t *testing.T) {
	r := newRecord(2)
	r.answer(1, finished{Latency: 30 * ms, Queue: 10 * ms, Target: 20 * ms})
	r.answer(1, finished{Latency: 30 * ms}) // without a target
	for _, beyond := range []int{-1, 2} {
		r.answer(beyond, finished{Latency: ms})
	}
	for i, want := range []uint64{0, 2} {
		if n, _ := sumOf(&r.services[i].latency); n != want {
			t.Errorf("service %d: %d latencies, want %d", i, n, want)
		}
	}
	if n, sum := sumOf(&r.services[1].target); n != 1 || sum != 1.5 {
		t.Errorf("%d of the target, %v", n, sum)
	}
	if n, sum := sumOf(&r.services[1].queue); n != 2 || sum != 0.01 {
		t.Errorf("%d waited for %v s", n, sum)
	}
}

// A copy tells the same, and stays as it is whatever happens to the original.
func TestRecordCopy(t *testing.T) {
	tell := func(r *record) string { return text(t, &Snapshot{Record: r, Services: make([]Service, 1)}) }
	r, c := newRecord(1), newRecord(1)
	empty := tell(c)
	everything(r)
	if line, same := apart(empty, tell(c)); !same {
		t.Errorf("a copy follows its original: %s", line)
	}
	r.copyTo(c)
	if line, same := apart(tell(r), tell(c)); !same {
		t.Errorf("a copy tells %s", line)
	}
	if _, same := apart(empty, tell(c)); same {
		t.Error("nothing was copied")
	}
}

// everything happens to a record.
func everything(r *record) {
	r.wake(0)
	r.dispatch(sent{Spans: 2, Predicted: 10 * ms, Bound: 12 * ms, Solo: 16 * ms, Headroom: 50 * ms, Urgent: true})
	r.finish(outcome{Took: 14 * ms, Compared: 14 * ms, Whole: true})
	r.answer(0, finished{Latency: 30 * ms, Queue: 10 * ms, Target: 20 * ms})
	r.rest(ms)
}

// The scheduler goroutine pays for no memory.
func TestRecordDoesNotAllocate(t *testing.T) {
	r := newRecord(1)
	c := newRecord(1)
	if n := testing.AllocsPerRun(100, func() { everything(r); r.copyTo(c) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRecord is what a round of two spans costs the scheduler goroutine
// here, with one query that it answers.
func BenchmarkRecord(b *testing.B) {
	r := newRecord(1)
	b.ReportAllocs()
	for b.Loop() {
		everything(r)
	}
}

// BenchmarkCopy is what a scrape costs the scheduler goroutine here.
func BenchmarkCopy(b *testing.B) {
	for _, services := range []int{2, 64} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			r, to := newRecord(services), newRecord(services)
			b.ReportAllocs()
			for b.Loop() {
				r.copyTo(to)
			}
		})
	}
}
