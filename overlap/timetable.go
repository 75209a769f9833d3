package overlap

import (
	"cmp"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// maxReserved is how many intervals a timetable holds. A device or a link with that many
// takes no further batch until one has left.
const maxReserved = 256

// slot is an interval that is reserved for a leg of a batch.
type slot struct {
	from, until time.Duration
	batch       *batch
	leg         int
}

// timetable is when a device, or a link in one direction, is reserved. As what runs takes
// longer or shorter than it should, intervals may come to overlap, until those that follow
// are corrected.
type timetable struct{ slots []slot } // by their beginning

func (t *timetable) full() bool { return len(t.slots) >= maxReserved }

// earliest returns when something can begin that takes a time, at or after another.
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

// common returns when something can begin that needs two timetables at once.
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

// add reserves an interval.
func (t *timetable) add(s slot) {
	at := len(t.slots)
	for at > 0 && s.before(&t.slots[at-1]) {
		at--
	}
	t.slots = slices.Insert(t.slots, at, s)
}

// before orders intervals, so that the order does not depend on which was added first.
func (s *slot) before(o *slot) bool {
	return s.from < o.from || s.from == o.from && (s.batch.id < o.batch.id || s.batch == o.batch && s.leg < o.leg)
}

// remove gives up the interval of a leg, if there is one.
func (t *timetable) remove(b *batch, leg int) {
	if at := t.find(b, leg); at >= 0 {
		t.slots = slices.Delete(t.slots, at, at+1)
	}
}

func (t *timetable) find(b *batch, leg int) int {
	for i := range t.slots {
		if s := &t.slots[i]; s.batch == b && s.leg == leg {
			return i
		}
	}
	return -1
}

// tables are when the devices and the links of a pool are reserved, and what finds ways
// through them.
type tables struct {
	pool       *host
	now        *time.Duration
	everywhere []int       // all devices
	links      []int       // of each device, nil if no move waits for another
	out, in    []timetable // of each link
	known      map[asking]estimated
	blind      bool // nobody looks further than to the next device, see reactive
}

// route is a way that a probe has found.
type route struct {
	legs  []leg
	ends  time.Duration // when the last stage does
	spare time.Duration // by which all stages together may take longer, by their bounds
	waits time.Duration // for devices and links
	p     int           // the pipeline, of a batch that is to be formed, and its size
	size  int

	target time.Duration // of its most urgent query, from its arrival
}

// way is where a probe begins.
type way struct {
	device, next int // -1 and 0 for a batch that is to be formed
	size, seqLen int
	move         time.Duration // for each query, to the first stage
}

// maxEstimates is how many estimates of stages are remembered. Each is asked for again when
// such a stage has run.
const maxEstimates = 1 << 13

// asking is a stage of a batch on a kind of device, whose estimate is remembered.
type asking struct {
	Service      models.ServiceID
	Start, End   int
	Size, SeqLen int
	Kind         int
}

// estimated is an estimate that is asked for again if it is stale.
type estimated struct {
	models.Estimate
	Stale bool `json:",omitempty"`
}

// knownStage is an estimate in the form that a snapshot has.
type knownStage struct {
	asking
	estimated
}

// estimates returns the remembered estimates, sorted by what they are of.
func (x *tables) estimates() (all []knownStage) {
	for of, e := range x.known {
		all = append(all, knownStage{of, e})
	}
	slices.SortFunc(all, func(a, b knownStage) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End),
			cmp.Compare(a.Size, b.Size), cmp.Compare(a.SeqLen, b.SeqLen), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// probe finds, stage by stage, the device on which a batch ends first, with what it waits
// for links and devices. Where no device of a stage can run it, it stays where it is, or
// begins on any other: each has the whole model. It is false if there is none to begin on.
func (x *tables) probe(to *route, sv *service, w way) bool {
	t, last, start := *x.now, w.device, w.next
	began, work := t, time.Duration(0)
	to.spare = 0
	for k := range to.legs {
		g := &to.legs[k]
		if x.blind && k > 0 {
			if w.device < 0 {
				x.expect(to, k, sv)
			}
			t += g.Travel + g.Took
			continue
		}
		if k > 0 {
			w.move = to.legs[k-1].Move
		}
		travel := x.travel(sv, w.move, w.size)
		span := models.Span{Service: sv.ID, Start: start, End: g.End, Size: w.size, SeqLen: w.seqLen}
		onward := x.travel(sv, g.Move, w.size)
		e, ok := x.stage(g, g.Devices, sv, span, last, t, travel, onward)
		switch {
		case ok:
		case last >= 0:
			e = x.stay(g, last, span, t)
		case slices.ContainsFunc(g.Devices, sv.runnable):
			return false // none has room
		default:
			if e, ok = x.stage(g, x.everywhere, sv, span, last, t, travel, onward); !ok {
				return false
			}
		}
		t, last, start = g.Start+g.Took, g.Device, g.End
		work += g.Travel + g.Took
		to.spare += e.Bound - e.Latency
	}
	to.ends, to.waits = t, t-began-work
	if first := &to.legs[0]; x.blind && w.device < 0 {
		to.ends += x.share(to.target, t-first.Start-first.Took, t-began)
		to.waits = x.pool.devices[first.Device].ends() // the one that has been free for longest
	}
	return true
}

// stage chooses the device, of some, from which a batch can go on first: on which the leg
// ends first, and the link is free then if there is a move to come. Else all would leave by
// the link of the first device. It is false if none can run it.
func (x *tables) stage(g *leg, devices []int, sv *service, span models.Span, last int, t, travel, onward time.Duration) (found models.Estimate, ok bool) {
	if x.blind {
		return x.first(g, devices, sv, span, last, t, travel)
	}
	leaves := forever
	var e models.Estimate
	kind, alike := -1, sv.alike && len(devices) < len(x.everywhere) && !slices.Contains(devices, last)
	for _, i := range devices {
		if !sv.runnable(i) {
			continue
		}
		v := x.pool.devices[i]
		if v.kind != kind {
			kind, e = v.kind, x.estimate(v, span)
		}
		moves := travel
		if last < 0 || last == i {
			moves = 0
		}
		if t+moves+e.Latency >= leaves || v.reserved.full() {
			continue
		}
		depart, start := x.fits(last, v, t, moves, e.Latency)
		end := start + e.Latency
		if onward > 0 && x.links != nil && end < leaves {
			end = x.out[x.links[i]].earliest(end, onward)
		}
		if end < leaves {
			leaves, found, ok = end, e, true
			g.Device, g.Depart, g.Travel, g.Start, g.Took = i, depart, moves, start, e.Latency
			if alike && leaves == t+moves+e.Latency {
				break // none is sooner
			}
		}
	}
	return found, ok
}

// first chooses the device that has been free for longest or is free first, for a batch that
// is to be formed one that is free. It looks at no link.
func (x *tables) first(g *leg, devices []int, sv *service, span models.Span, last int, t, travel time.Duration) (found models.Estimate, ok bool) {
	least := forever
	for _, i := range devices {
		v := x.pool.devices[i]
		at, queued := v.ends(), len(v.reserved.slots)
		if !sv.runnable(i) || v.reserved.full() || last < 0 && (v.busy || queued > 0) {
			continue
		}
		if queued > 0 {
			at = max(at, v.reserved.slots[queued-1].until)
		}
		if at < least {
			least, g.Device, ok = at, i, true
		}
	}
	if !ok {
		return found, false
	}
	found = x.estimate(x.pool.devices[g.Device], span)
	g.Depart, g.Travel, g.Took = t, 0, found.Latency
	if last >= 0 && last != g.Device {
		g.Travel = travel
	}
	g.Start = max(least, t+g.Travel)
	return found, true
}

// expect enters what a stage after the first, which is not looked for yet, and the move to
// it take in a batch of the size that is planned for: that part of the target is not for
// those before it.
func (x *tables) expect(to *route, k int, sv *service) {
	g, before := &to.legs[k], &to.legs[k-1]
	size := max(sv.Pipelines[to.p].Batch, to.size)
	g.Device, g.Travel = -1, x.travel(sv, before.Move, size)
	g.Took = x.estimate(x.pool.devices[g.Devices[0]], models.Span{Service: sv.ID, Start: before.End, End: g.End, Size: size}).Latency
}

// share returns how much longer than they take the stages after the first may take, if
// each has its part of the target.
func (*tables) share(target, rest, all time.Duration) time.Duration {
	return time.Duration(float64(rest) * max(float64(target)/float64(max(all, 1))-1, 0))
}

// stay has a leg run on the device that a batch is on.
func (x *tables) stay(g *leg, device int, span models.Span, t time.Duration) models.Estimate {
	v := x.pool.devices[device]
	e := x.estimate(v, span)
	_, start := x.fits(device, v, t, 0, e.Latency)
	g.Device, g.Depart, g.Travel, g.Start, g.Took = device, t, 0, start, e.Latency
	return e
}

// fits returns when a batch that may leave its last device at a time, if it has one, does so
// and starts on the next.
func (x *tables) fits(last int, v *device, t, travel, took time.Duration) (depart, start time.Duration) {
	depart = t
	if x.links != nil && last >= 0 && last != v.index {
		depart = x.out[x.links[last]].common(&x.in[x.links[v.index]], t, travel)
	}
	at := depart + travel
	if v.busy {
		at = max(at, v.ends())
	}
	return depart, v.reserved.earliest(at, took)
}

// estimate returns what a stage takes alone on a device.
func (x *tables) estimate(v *device, span models.Span) models.Estimate {
	key := asking{span.Service, span.Start, span.End, span.Size, span.SeqLen, v.kind}
	if e, ok := x.known[key]; ok && !e.Stale {
		return e.Estimate
	}
	if len(x.known) >= maxEstimates {
		clear(x.known)
	}
	e := v.predict.alone(span)
	x.known[key] = estimated{Estimate: e}
	return e
}

// forget has the estimate of a stage asked for again that has just run on a device.
func (x *tables) forget(b *batch) {
	if len(b.Legs) == 0 {
		return
	}
	start := 0
	if b.Leg > 0 {
		start = b.Legs[b.Leg-1].End
	}
	key := asking{b.service.ID, start, b.end(), b.Size, b.SeqLen, b.device.kind}
	if e, ok := x.known[key]; ok {
		e.Stale = true
		x.known[key] = e
	}
}

// travel returns what a batch is expected to take to the next device, if each query adds
// a time to it.
func (*tables) travel(sv *service, move time.Duration, size int) time.Duration {
	took := move * time.Duration(size)
	if sv.Travel > 0 {
		took = time.Duration(sv.Travel * float64(took))
	}
	return took
}

// reserve enters the rest of the way of a batch in the timetables.
func (x *tables) reserve(b *batch) { x.enter(b, true) }

// vacate gives up what is reserved for a batch.
func (x *tables) vacate(b *batch) { x.enter(b, false) }

func (x *tables) enter(b *batch, add bool) {
	if len(b.Legs) == 0 {
		return
	}
	from := b.device.index
	if b.Transit == settled {
		from = b.Legs[b.Leg].Device
	}
	for k := b.Leg; k < len(b.Legs); k++ {
		g := &b.Legs[k]
		if g.Device < 0 {
			return
		}
		x.mark(&x.pool.devices[g.Device].reserved, slot{g.Start, g.Start + g.Took, b, k}, add)
		if x.links != nil && from != g.Device {
			move := slot{g.Depart, g.Depart + g.Travel, b, k}
			x.mark(&x.out[x.links[from]], move, add)
			x.mark(&x.in[x.links[g.Device]], move, add)
		}
		from = g.Device
	}
}

func (*tables) mark(t *timetable, s slot, add bool) {
	if add {
		t.add(s)
	} else {
		t.remove(s.batch, s.leg)
	}
}

// correct sets when the stage that a batch is in really begins, and what it will take.
func (x *tables) correct(b *batch, start, took time.Duration) {
	if g := &b.Legs[b.Leg]; g.Start != start || g.Took != took {
		t := &b.device.reserved
		t.remove(b, b.Leg)
		g.Start, g.Took = start, took
		t.add(slot{start, start + took, b, b.Leg})
	}
}

// spared returns when a group must have ended that a batch is to be in, or that is of
// other work, for the sake of those who have reserved the device: of a batch alone those
// before it, and of a group all that are not in it. What could not be in time if it
// started at a time does not count.
func (t *timetable) spared(d *decision, of *batch, soon time.Duration) time.Duration {
	limit, slots := forever, t.slots
	if len(slots) == 0 || d.s.blind {
		return forever
	}
	last := len(slots) - 1
	if of != nil && len(d.group) == 0 {
		for last >= 0 && slots[last].batch != of {
			last--
		}
		if last < 0 {
			last = len(slots) - 1
		}
	}
	for i := last; i >= 0; i-- {
		b, k := slots[i].batch, slots[i].leg
		if b == of || b.running && b.device == d.device || slices.ContainsFunc(d.group, func(i int) bool { return d.candidates[i].batch == b }) || b.Due == forever {
			continue
		}
		latest := min(limit, b.Due-b.laterThan(k)) - (slots[i].until - slots[i].from)
		if latest >= soon {
			limit = latest
		}
	}
	return limit
}
