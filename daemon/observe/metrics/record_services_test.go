package metrics

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// latencies returns how many queries each service has answered.
func latencies(r *record) (all []uint64) {
	for i := range r.services {
		n, _ := sumOf(&r.services[i].latency)
		all = append(all, n)
	}
	return all
}

func answer(r *record, service, times int) {
	for range times {
		r.answer(service, finished{Latency: 30 * ms, Queue: 10 * ms, Target: 20 * ms})
	}
}

func TestSetServices(t *testing.T) {
	r := newRecord(1)
	answer(r, 0, 2)
	r.setServices(3)
	answer(r, 2, 1)
	r.setServices(1) // they stay
	if got := latencies(r); len(got) != 3 || got[0] != 2 || got[1] != 0 || got[2] != 1 {
		t.Errorf("answered %v", got)
	}
}

// A successor goes on with what its predecessor noted, of every kind.
func TestFold(t *testing.T) {
	r := newRecord(2)
	answer(r, 0, 5)
	answer(r, 1, 2)
	r.fold(0, 1)
	answer(r, 0, 1) // it had one more
	r.fold(0, 1)
	for i, want := range []uint64{0, 8} {
		for k, h := range r.services[i].all() {
			if n, _ := sumOf(h); n != want {
				t.Errorf("service %d, histogram %d: %d values, want %d", i, k, n, want)
			}
		}
	}
	if _, sum := sumOf(&r.services[1].target); sum != 12 {
		t.Errorf("the sum is %v", sum)
	}
	r.fold(1, 4) // into one that is not there yet
	for _, none := range [][2]int{{4, 4}, {-1, 0}, {9, 0}, {4, -1}} {
		r.fold(none[0], none[1])
	}
	if got := latencies(r); len(got) != 5 || got[4] != 8 {
		t.Errorf("answered %v", got)
	}
	r.clear(4)
	r.clear(-1)
	r.clear(5)
	if got := latencies(r); got[4] != 0 {
		t.Errorf("after Clear: %v", got)
	}
}

// However services come, go and are replaced, no series goes backward and none
// is counted twice.
func TestSeriesNeverGoBackward(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, slot, next := newRecord(1), 0, 1
		var answered, told uint64
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "replace") {
				old := slot
				slot = rapid.IntRange(0, next).Draw(t, "slot")
				next = max(next, slot+1)
				r.fold(old, slot)
			}
			n := rapid.IntRange(0, 3).Draw(t, "answers")
			r.setServices(slot + 1)
			answer(r, slot, n)
			answered += uint64(n)
			now := latencies(r)[slot]
			if now < told || now != answered {
				t.Fatalf("%d after %d, %d were answered", now, told, answered)
			}
			told = now
		}
	})
}

// A copy has as many services as its original, whatever it had before.
func TestCopyOfAnotherLength(t *testing.T) {
	for _, n := range [][2]int{{3, 1}, {1, 3}, {0, 2}, {2, 0}} {
		r, c := newRecord(n[0]), newRecord(n[1])
		for i := range n[0] {
			answer(r, i, i+1)
		}
		for i := range n[1] {
			answer(c, i, 9)
		}
		r.copyTo(c)
		if got := latencies(c); len(got) != n[0] || n[0] > 0 && got[n[0]-1] != uint64(n[0]) {
			t.Errorf("%d services into %d: %v", n[0], n[1], got)
		}
		r.setServices(4)
		answer(r, 3, 7)
		if r.copyTo(c); len(c.services) != 4 || latencies(c)[3] != 7 {
			t.Errorf("%d services into %d, and then 4: %v", n[0], n[1], latencies(c))
		}
	}
}

// Once both are large enough, the goroutine pays for no memory.
func TestChangedRecordDoesNotAllocate(t *testing.T) {
	r, c := newRecord(1), newRecord(1)
	r.setServices(3)
	r.copyTo(c)
	if n := testing.AllocsPerRun(100, func() { answer(r, 2, 1); r.fold(2, 1); r.copyTo(c) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Series are told under the name of the service that has the slot.
func TestSlotsHaveNames(t *testing.T) {
	r := newRecord(3)
	answer(r, 2, 4)
	answer(r, 1, 9) // of one that is gone
	s := &Snapshot{Record: r, Services: []Service{{Name: "b", Slot: 2, Target: time.Second}, {Name: "a"}, {Name: "later", Slot: 7}}}
	for _, all := range []*Snapshot{s, Join(&Snapshot{Record: newRecord(2), Services: make([]Service, 1)}, s)} {
		says(t, text(t, all),
			`overlapd_query_latency_seconds_count{service="a"} 0`, `overlapd_query_latency_seconds_count{service="b"} 4`)
	}
}
