package reserve

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// route is a way that a probe has found.
type route struct {
	legs []leg

	// pipeline and size are those of a batch that is to be formed.
	pipeline int
	size     int

	// ends is when the last stage ends. waits is how long the batch waits for devices and links.
	ends  time.Duration
	waits time.Duration
}

// stretch lets the stages after the first take as much longer as their part of the target allows.
func (r *route) stretch(target, at time.Duration) {
	rest, all := r.ends-r.legs[0].Start-r.legs[0].Took, r.ends-at
	r.ends += time.Duration(float64(rest) * max(float64(target)/float64(max(all, 1))-1, 0))
}

// start is where a probe begins.
type start struct {
	at time.Duration

	// device and next are where the batch is and its next operator, -1 and 0 if it is to be formed.
	device, next int
	size, seqLen int

	// move is the time of each query for the move to the first stage.
	move time.Duration

	// target is the target of the most urgent query, if the batch is to be formed.
	target time.Duration
}

// probe finds, stage by stage, the device on which a batch ends first, with regard to what it waits
// for links and devices (algorithm 2). If no device of a stage can run it, it stays where it is, or
// begins on any other device: each has the whole model. It is false if no device can begin it.
func (t *Tables) probe(to *route, q *Queue, s start) bool {
	at, last, first, work := s.at, s.device, s.next, time.Duration(0)
	for k := range to.legs {
		g := &to.legs[k]
		if t.reactive && k > 0 {
			if s.device < 0 {
				t.expect(to, k, q)
			}
			at += g.Travel + g.Took
			continue
		}
		if k > 0 {
			s.move = to.legs[k-1].Move
		}
		travel, onward := q.travel(s.move, s.size), q.travel(g.Move, s.size)
		span := models.Span{Service: q.Service.ID, Start: first, End: g.End, Size: s.size, SeqLen: s.seqLen}
		switch {
		case t.stage(g, g.Devices, q, span, last, at, travel, onward):
		case last >= 0:
			t.stay(g, last, span, at)
		case slices.ContainsFunc(g.Devices, func(i int) bool { return t.pool.Runs(q.Service.ID, i) }):
			return false // none has room
		case !t.stage(g, t.everywhere, q, span, last, at, travel, onward):
			return false
		}
		at, last, first = g.Start+g.Took, g.Device, g.End
		work += g.Travel + g.Took
	}
	to.ends, to.waits = at, at-s.at-work
	if t.reactive && s.device < 0 {
		to.stretch(s.target, s.at)
		to.waits, _ = t.pool.Ends(to.legs[0].Device) // the device that has been free for longest comes first
	}
	return true
}

// stage chooses from some devices the one on which the leg ends first and the link is free, if a
// move follows. Without the link, all batches would leave by the link of the first device, and the
// load factor of figure 10 (reproduce ppipe) is 1.5 % lower. It is false if no device can run the leg.
func (t *Tables) stage(g *leg, devices []int, q *Queue, span models.Span, last int, at, travel, onward time.Duration) (found bool) {
	if t.reactive {
		return t.first(g, devices, q, span, last, at, travel)
	}
	leaves, kind, took := never, -1, time.Duration(0)
	for _, i := range devices {
		if !t.pool.Runs(q.Service.ID, i) {
			continue
		}
		if t.kinds[i] != kind {
			kind, took = t.kinds[i], t.estimate(i, span).Latency
		}
		moves := travel
		if last < 0 || last == i {
			moves = 0
		}
		if at+moves+took >= leaves || t.devices[i].full() {
			continue
		}
		depart, start := t.fits(last, i, at, moves, took)
		end := start + took
		if onward > 0 && t.links != nil && end < leaves {
			end = t.out[t.links[i]].earliest(end, onward)
		}
		if end < leaves {
			leaves, found = end, true
			g.Device, g.Depart, g.Travel, g.Start, g.Took = i, depart, moves, start, took
		}
	}
	return found
}

// stay runs a leg on the device that the batch is on.
func (t *Tables) stay(g *leg, device int, span models.Span, at time.Duration) {
	took := t.estimate(device, span).Latency
	_, start := t.fits(device, device, at, 0, took)
	g.Device, g.Depart, g.Travel, g.Start, g.Took = device, at, 0, start, took
}

// fits returns when a batch that may leave its last device at a time, if it has one, departs, and
// when it starts on the next device.
func (t *Tables) fits(last, device int, at, travel, took time.Duration) (depart, start time.Duration) {
	depart = at
	if t.links != nil && last >= 0 && last != device {
		depart = t.out[t.links[last]].common(&t.in[t.links[device]], at, travel)
	}
	at = depart + travel
	if ends, runs := t.pool.Ends(device); runs {
		at = max(at, ends)
	}
	return depart, t.devices[device].earliest(at, took)
}

// first chooses the device that is free first, or has been free for longest, for a batch at the end
// of a stage. For a batch that is to be formed, the device must be free. It does not look at links.
func (t *Tables) first(g *leg, devices []int, q *Queue, span models.Span, last int, at, travel time.Duration) (found bool) {
	least := never
	for _, i := range devices {
		queued := t.devices[i].slots
		if last < 0 && len(queued) > 0 || t.devices[i].full() || !t.pool.Runs(q.Service.ID, i) {
			continue
		}
		ends, runs := t.pool.Ends(i)
		if last < 0 && runs {
			continue
		}
		if len(queued) > 0 {
			ends = max(ends, queued[len(queued)-1].until)
		}
		if ends < least {
			least, g.Device, found = ends, i, true
		}
	}
	if !found {
		return false
	}
	g.Depart, g.Travel, g.Took = at, 0, t.estimate(g.Device, span).Latency
	if last >= 0 && last != g.Device {
		g.Travel = travel
	}
	g.Start = max(least, at+g.Travel)
	return true
}

// expect enters the duration of a stage after the first, for which no device is chosen yet, and of
// the move to it, in a batch of the planned size. That part of the target is not for earlier stages.
func (t *Tables) expect(to *route, k int, q *Queue) {
	g, before := &to.legs[k], &to.legs[k-1]
	size := max(q.Service.Pipelines[to.pipeline].Batch, to.size)
	g.Device, g.Travel = -1, q.travel(before.Move, size)
	g.Took = t.estimate(g.Devices[0], models.Span{Service: q.Service.ID, Start: before.End, End: g.End, Size: size}).Latency
}
