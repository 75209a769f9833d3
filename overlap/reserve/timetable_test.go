package reserve

import (
	"testing"
	"time"
)

// TestTimetable finds gaps between reserved intervals.
func TestTimetable(t *testing.T) {
	var a, b timetable
	w := &Way{Batch: 1}
	a.set(slot{30 * ms, 40 * ms, w, 1}, true)
	a.set(slot{10 * ms, 20 * ms, w, 0}, true)
	b.set(slot{20 * ms, 25 * ms, w, 2}, true)
	for _, c := range []struct{ at, took, alone, both time.Duration }{
		{0, 10 * ms, 0, 0},
		{0, 11 * ms, 40 * ms, 40 * ms},
		{5 * ms, 6 * ms, 20 * ms, 40 * ms},
		{5 * ms, 5 * ms, 5 * ms, 5 * ms},
		{15 * ms, 5 * ms, 20 * ms, 25 * ms},
		{50 * ms, 5 * ms, 50 * ms, 50 * ms},
	} {
		if alone, both := a.earliest(c.at, c.took), a.common(&b, c.at, c.took); alone != c.alone || both != c.both {
			t.Errorf("%v from %v: got %v and %v, want %v and %v", c.took, c.at, alone, both, c.alone, c.both)
		}
	}
	if err := a.check(map[*Way]bool{w: true}); err != nil {
		t.Error(err)
	}
	a.set(slot{way: w, leg: 0}, false)
	if a.find(w, 0) >= 0 || a.find(w, 1) != 0 {
		t.Errorf("got %+v, want the interval of leg 1 alone", a.slots)
	}
}
