// Package reserve finds the ways of batches through the stages of pipelines, and reserves devices
// and links for them, as PPipe does (section 5.4, appendix A.3). [Tables.Next] is its algorithm 1,
// which chooses the pipeline and the size of a batch. Its algorithm 2 is [Tables] themselves: the
// function probe finds the earliest way by the timetables, and [Tables.Reserve] enters it.
//
// A scheduler gathers the queries that may be in a batch, and forms, runs and moves it. Here is
// only when which device and link is taken, in plain values. Nothing here knows of other work that
// may run in the gaps: the scheduler asks [Tables.Limit] when that must have ended.
package reserve

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
)

// never is later than all times.
const never = time.Duration(1<<63 - 1)

// leg is a stage on the way of a batch.
type leg struct {
	models.Stage

	// Device is -1 if it is not chosen yet.
	Device int

	// Depart is when the move to the device begins, if the batch comes from another one.
	// Travel is the predicted duration of the move.
	Depart time.Duration
	Travel time.Duration

	// Start is when the stage begins, and Took its predicted duration.
	Start time.Duration
	Took  time.Duration
}

// Way is the way of a batch through the stages of its pipeline. A batch without a pipeline has the
// zero Way.
type Way struct {
	// Legs are the stages, and Leg is the index of the one that the batch is in or moves to.
	Legs []leg `json:",omitempty"`
	Leg  int   `json:",omitempty"`

	// Due is the earliest deadline of the batch.
	Due time.Duration `json:",omitempty"`

	// Batch is the ID of the batch.
	Batch models.BatchID `json:"-"`

	// Late reports whether the batch may end after its deadline: it is best effort, or explores.
	Late bool `json:"-"`
}

// At returns the leg that the batch is in or moves to.
func (w *Way) At() *leg { return &w.Legs[w.Leg] }

// Later returns how long the stages and moves after the current stage take without waiting. The
// batch must end its stage by that much earlier than its deadline. It is 0 if the batch may be late.
func (w *Way) Later() time.Duration { return w.after(w.Leg) }

// after returns the same for the leg with index k.
func (w *Way) after(k int) (left time.Duration) {
	if len(w.Legs) == 0 || w.Late {
		return 0
	}
	for i := k + 1; i < len(w.Legs); i++ {
		left += w.Legs[i].Travel + w.Legs[i].Took
	}
	return left
}

// Check reports whether the way is possible with this many devices, for a model with this many
// operators. moving reports whether the batch is between two stages.
func (w *Way) Check(devices, operators int, moving bool) error {
	start := 0
	if n := len(w.Legs); n > 0 && (w.Leg < 0 || w.Leg >= n || w.Leg == 0 && moving) || n == 0 && moving {
		return fmt.Errorf("it is at stage %d of %d", w.Leg, n)
	}
	for k, g := range w.Legs {
		if g.Device < -1 || g.Device >= devices || g.Device < 0 && k <= w.Leg || g.End <= start || k == len(w.Legs)-1 && g.End != operators {
			return fmt.Errorf("its stage %d ends at %d on device %d", k, g.End, g.Device)
		}
		for _, d := range g.Devices {
			if d < 0 || d >= devices {
				return fmt.Errorf("its stage %d may be on device %d", k, d)
			}
		}
		start = g.End
	}
	return nil
}

// pool is what Tables ask the scheduler about its devices.
type pool interface {
	// Ends returns when the last round of a device ends, as predicted, and whether it still runs.
	Ends(device int) (at time.Duration, runs bool)

	// Runs reports whether the worker of a service on a device can run a batch.
	Runs(service models.ServiceID, device int) bool

	// Alone returns the estimate of a span that runs alone on a device.
	Alone(device int, span models.Span) models.Estimate
}

// Tables are the timetables of the devices and links of a pool, and what was estimated for them.
type Tables struct {
	estimates

	// devices are the timetables of the devices, and everywhere the indices of all of them.
	devices    []timetable
	everywhere []int

	// links holds the link of each device, and is nil if no move waits for another. out and in are
	// the timetables of each link, sends and receives whether a batch uses it now.
	links           []int
	out, in         []timetable
	sends, receives []bool

	// reactive is set if nothing is reserved ahead: a batch looks for a device only when it is at
	// the end of a stage.
	reactive bool

	best, trial route
}

// New returns the tables of a pool that is idle. kinds holds for each device the first one that is
// like it, and links the link over which batches come and go, nil if no move waits for another.
// With reactive, nothing is reserved ahead (section 7.4).
func New(p pool, kinds, links []int, reactive bool) *Tables {
	t := &Tables{estimates: estimates{p, kinds, map[asking]estimated{}}, devices: make([]timetable, len(kinds)), reactive: reactive}
	if !reactive {
		t.links = links
	}
	for i := range kinds {
		t.everywhere = append(t.everywhere, i)
	}
	n := 0
	for _, link := range t.links {
		n = max(n, link+1)
	}
	t.out, t.in = make([]timetable, n), make([]timetable, n)
	t.sends, t.receives = make([]bool, n), make([]bool, n)
	return t
}

// Reserve enters the rest of a way, of a batch that is on a device, in the timetables.
func (t *Tables) Reserve(w *Way, device int) { t.enter(w, device, true) }

// Vacate removes what is reserved for the rest of a way, of a batch that is on a device.
func (t *Tables) Vacate(w *Way, device int) { t.enter(w, device, false) }

func (t *Tables) enter(w *Way, from int, add bool) {
	for k := w.Leg; k < len(w.Legs); k++ {
		g := &w.Legs[k]
		if g.Device < 0 {
			return
		}
		t.devices[g.Device].set(slot{g.Start, g.Start + g.Took, w, k}, add)
		if t.links != nil && from != g.Device {
			move := slot{g.Depart, g.Depart + g.Travel, w, k}
			t.out[t.links[from]].set(move, add)
			t.in[t.links[g.Device]].set(move, add)
		}
		from = g.Device
	}
}

// Correct sets when the current stage of a batch really begins, and its duration.
func (t *Tables) Correct(w *Way, start, took time.Duration) {
	if g := w.At(); g.Start != start || g.Took != took {
		v := &t.devices[g.Device]
		v.set(slot{way: w, leg: w.Leg}, false)
		g.Start, g.Took = start, took
		v.set(slot{start, start + took, w, w.Leg}, true)
	}
}

// Reroute finds the way of a batch on from the end of a stage again, and reserves it. If no device
// of the next stage can run it, it stays on the device that it is on. It keeps the devices of its
// way if it ends sooner so: a batch that is a moment late no longer fits between those that have
// reserved before and after it, and would come after all of them. That is worth 4 % of the load of
// two services on the same devices, 9 % under overlap, if one has half the target of the other.
func (t *Tables) Reroute(now time.Duration, w *Way, q *Queue, device, next, size, seqLen int) {
	t.Vacate(w, device)
	t.trial.legs = append(t.trial.legs[:0], w.Legs[w.Leg:]...)
	t.probe(&t.trial, q, start{at: now, device: device, next: next, size: size, seqLen: seqLen, move: w.Legs[w.Leg-1].Move})
	if kept, ok := t.shift(now, w, q, false); ok && kept < t.trial.ends {
		t.shift(now, w, q, true)
	} else {
		copy(w.Legs[w.Leg:], t.trial.legs)
	}
	t.Reserve(w, device)
}

// shift returns when a batch ends on the devices of its way, if others that have reserved them make
// room. It is false if one of the devices cannot run it. With set, it changes the way to that.
func (t *Tables) shift(at time.Duration, w *Way, q *Queue, set bool) (ends time.Duration, ok bool) {
	for k := w.Leg; k < len(w.Legs); k++ {
		g := w.Legs[k]
		if g.Device < 0 || !t.pool.Runs(q.Service.ID, g.Device) {
			return 0, false
		}
		g.Depart, g.Start = at, max(at+g.Travel, g.Start)
		at = g.Start + g.Took
		if set {
			w.Legs[k] = g
		}
	}
	return at, true
}

// Occupied reports whether another batch is being moved over the links between two devices.
func (t *Tables) Occupied(from, to int) bool {
	return t.links != nil && (t.sends[t.links[from]] || t.receives[t.links[to]])
}

// Occupy records that a move between two devices has begun or ended.
func (t *Tables) Occupy(from, to int, begun bool) {
	if t.links != nil {
		t.sends[t.links[from]], t.receives[t.links[to]] = begun, begun
	}
}

// Limit returns when a group on a device must have ended for the sake of reservations, never if
// there is none. The batches for which in returns true, which are in the group or run already,
// impose no limit, nor do those that may be late, or would be late if they started at soon. If before
// is set, only reservations before that of this batch limit the group: otherwise two services on the
// same devices, one with half the target of the other, sustain 18 % less.
func (t *Tables) Limit(device int, before *Way, soon time.Duration, in func(*Way) bool) time.Duration {
	limit, slots := never, t.devices[device].slots
	if len(slots) == 0 || t.reactive {
		return never
	}
	last := len(slots) - 1
	if before != nil {
		for last >= 0 && slots[last].way != before {
			last--
		}
		if last < 0 {
			last = len(slots) - 1
		}
	}
	for i := last; i >= 0; i-- {
		s := &slots[i]
		if s.way.Late || in(s.way) {
			continue
		}
		if latest := min(limit, s.way.Due-s.way.after(s.leg)) - (s.until - s.from); latest >= soon {
			limit = latest
		}
	}
	return limit
}

// Reserved returns how many stages have reserved a device.
func (t *Tables) Reserved(device int) int { return len(t.devices[device].slots) }

// Check reports what is reserved for none of the ways, twice, or not at all.
func (t *Tables) Check(ways []*Way) error {
	known, legs, reserved := map[*Way]bool{}, 0, 0
	for _, w := range ways {
		known[w] = true
		for k := w.Leg; k < len(w.Legs); k++ {
			if g := &w.Legs[k]; g.Device >= 0 {
				legs++
				if t.devices[g.Device].find(w, k) < 0 {
					return fmt.Errorf("stage %d of batch %d is not reserved", k, w.Batch)
				}
			}
		}
	}
	for i := range t.devices {
		if err := t.devices[i].check(known); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		reserved += t.Reserved(i)
	}
	if reserved != legs {
		return fmt.Errorf("%d stages are to come, %d are reserved", legs, reserved)
	}
	for i := range t.out {
		if err := errors.Join(t.out[i].check(known), t.in[i].check(known)); err != nil {
			return fmt.Errorf("link %d: %w", i, err)
		}
	}
	return nil
}
