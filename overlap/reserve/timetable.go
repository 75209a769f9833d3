package reserve

import (
	"fmt"
	"slices"
	"time"
)

// MaxSlots is the highest number of intervals in a timetable. A device or a link with that many
// takes no further batch until one has left.
const MaxSlots = 256

// slot is an interval that is reserved for a leg of a way.
type slot struct {
	from, until time.Duration
	way         *Way
	leg         int
}

// before orders intervals, so that their order does not depend on which one was added first.
func (s *slot) before(o *slot) bool {
	return s.from < o.from || s.from == o.from && (s.way.Batch < o.way.Batch || s.way == o.way && s.leg < o.leg)
}

// timetable holds the reserved intervals of a device, or of a link in one direction, in the order
// of their beginning. Intervals overlap when something has taken longer than predicted, until the
// later ones are corrected.
type timetable struct{ slots []slot }

// full reports whether no further interval fits in.
func (t *timetable) full() bool { return len(t.slots) >= MaxSlots }

// earliest returns the earliest time, not before at, from which an interval of length took is free.
func (t *timetable) earliest(at, took time.Duration) time.Duration {
	for i := range t.slots {
		if s := &t.slots[i]; s.until > at {
			if at+took <= s.from {
				break
			}
			at = s.until
		}
	}
	return at
}

// common returns the earliest time, not before at, from which an interval of length took is free in
// both timetables.
func (t *timetable) common(o *timetable, at, took time.Duration) time.Duration {
	for {
		at = t.earliest(at, took)
		other := o.earliest(at, took)
		if other == at {
			return at
		}
		at = other
	}
}

// set adds an interval, or removes the one of the same leg.
func (t *timetable) set(s slot, add bool) {
	if !add {
		if at := t.find(s.way, s.leg); at >= 0 {
			t.slots = slices.Delete(t.slots, at, at+1)
		}
		return
	}
	at := len(t.slots)
	for at > 0 && s.before(&t.slots[at-1]) {
		at--
	}
	t.slots = slices.Insert(t.slots, at, s)
}

// find returns the position of the interval of a leg, -1 if there is none.
func (t *timetable) find(w *Way, leg int) int {
	return slices.IndexFunc(t.slots, func(s slot) bool { return s.way == w && s.leg == leg })
}

// check reports the first interval that belongs to none of the given ways or is out of order.
func (t *timetable) check(ways map[*Way]bool) error {
	for i := range t.slots {
		s := &t.slots[i]
		if !ways[s.way] || s.until < s.from || i > 0 && s.before(&t.slots[i-1]) {
			return fmt.Errorf("from %v to %v it is reserved for batch %d", s.from, s.until, s.way.Batch)
		}
	}
	return nil
}
