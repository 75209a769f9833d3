package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Move is a batch that has come to the end of a stage and goes on on another device: its
// intermediates are to be brought there, see [Moved].
type Move struct {
	// Held is the batch on the device that it leaves.
	Held
	To int `json:"to"`

	// Operator is the first one that runs on the other device.
	Operator int `json:"from"`
	Size     int `json:"n"`
}

// leg is a stage on the way of a batch.
type leg struct {
	models.Stage
	Device int           // -1 if it is not chosen yet
	Depart time.Duration // when the move to it begins, if the batch comes from another device
	Travel time.Duration // what that takes
	Start  time.Duration // when the stage does
	Took   time.Duration // what the stage is predicted to take
}

// transit is how far the move of a batch is.
type transit uint8

const (
	settled  transit = iota // the batch is on its device
	awaiting                // its intermediates are still there, and wait for links
	moving                  // it is in Moves, and was not told to Moved
)

// Moving returns the queries of a batch that Moves has named and Moved was not told of, in
// the order in which they were gathered, those that were cancelled among them.
func (r *routes) Moving(id models.BatchID) (members []models.QueryID) {
	for _, b := range r.onWay {
		if b.id != id {
			continue
		}
		for _, q := range b.members {
			members = append(members, q.ID)
		}
	}
	return members
}

// moved takes in that a batch has arrived with its intermediates, which its source holds
// no more, or, with a status other than SpanDone, that they are lost: its queries then run
// again from their inputs, as those of a worker that is lost. Every Move must be followed
// by one call of Moved. Until then nobody in the batch is answered.
func (r *routes) moved(now time.Duration, m Move, took time.Duration, status models.Status) error {
	s := r.s
	s.clock(now)
	at := slices.IndexFunc(r.onWay, func(b *batch) bool { return b.Transit == moving && b.held() == m.Held && b.Legs[b.Leg].Device == m.To })
	if at < 0 {
		return ErrUnknownRound
	}
	b := r.onWay[at]
	s.overturn()
	r.arrived(at)
	if status == models.SpanDone {
		r.learn(b, took)
		b.device = s.devices[m.To]
	} else if b.service.up.has(m.Device) {
		s.release(b)
	}
	switch {
	case status != models.SpanDone:
		s.again(b, models.SpanLost)
	case !b.service.up.has(m.To):
		s.again(b, models.SpanLost)
	case !b.wanted():
		s.abandon(b, Cancelled, ReasonCancelled)
	default:
		r.correct(b, max(s.now, b.Legs[b.Leg].Start), b.Legs[b.Leg].Took)
		s.pause(b)
	}
	r.depart()
	return nil
}

// leave has a batch that has come to the end of a stage, and is no longer in a round, go
// on to the next one.
func (r *routes) leave(b *batch) {
	r.vacate(b)
	b.Leg++
	b.Transit = awaiting
	r.embark(b)
	r.s.overturn()
	r.reroute(b)
	r.depart()
}

// embark begins the transit of a batch, or takes it up where it was.
func (r *routes) embark(b *batch) {
	r.onWay = append(r.onWay, b)
	if b.Transit == awaiting {
		r.blocked++
	} else {
		r.occupy(b)
	}
}

// reroute finds the way of a batch on from the end of a stage again. Where no device of the
// next stage can run it, it stays on the one that it is on. It keeps its places if it ends
// sooner so: one that is a moment late would fit no more between those that have reserved
// before and after it, and come after all of them.
func (r *routes) reroute(b *batch) {
	r.vacate(b)
	r.trial.legs = append(r.trial.legs[:0], b.Legs[b.Leg:]...)
	r.probe(&r.trial, b.service, way{
		device: b.device.index, next: b.Next, size: b.Size, seqLen: b.SeqLen, move: b.Legs[b.Leg-1].Move,
	})
	if kept, ok := r.shift(b, false); ok && kept < r.trial.ends {
		r.shift(b, true)
	} else {
		copy(b.Legs[b.Leg:], r.trial.legs)
	}
	r.reserve(b)
}

// shift returns when a batch ends on the devices of its way, if whoever has reserved them after
// it makes room. It is false where one of them can run nothing. It may set its way to that.
func (x *tables) shift(b *batch, set bool) (ends time.Duration, ok bool) {
	t := *x.now
	for k := b.Leg; k < len(b.Legs); k++ {
		g := b.Legs[k]
		if g.Device < 0 || !b.service.runnable(g.Device) {
			return 0, false
		}
		g.Depart, g.Start = t, max(t+g.Travel, g.Start)
		t = g.Start + g.Took
		if set {
			b.Legs[k] = g
		}
	}
	return t, true
}

// depart begins the moves whose time has come and whose links are free, the one first that
// was reserved first. A batch whose device has gone down is sent elsewhere.
func (r *routes) depart() {
	for r.blocked > 0 {
		first := -1
		for i, b := range r.onWay {
			if b.Transit != awaiting || !r.ready(b) {
				continue
			}
			if first < 0 || b.Legs[b.Leg].Depart < r.onWay[first].Legs[r.onWay[first].Leg].Depart {
				first = i
			}
		}
		if first < 0 {
			return
		}
		b := r.onWay[first]
		to := b.Legs[b.Leg].Device
		switch {
		case to == b.device.index:
			r.arrived(first)
			r.s.pause(b)
		case !b.service.runnable(to):
			r.reroute(b)
		default:
			b.Transit = moving
			r.blocked--
			r.occupy(b)
			r.moves.add(b.move())
		}
	}
}

// ready reports whether the move of a batch may begin.
func (r *routes) ready(b *batch) bool {
	g := &b.Legs[b.Leg]
	if g.Device == b.device.index || !b.service.runnable(g.Device) {
		return true
	}
	return g.Depart <= r.s.now && (r.links == nil || !r.sends.has(r.links[b.device.index]) && !r.receives.has(r.links[g.Device]))
}

// occupy takes the links of a batch that is moving.
func (r *routes) occupy(b *batch) {
	if r.links != nil {
		r.sends.set(r.links[b.device.index])
		r.receives.set(r.links[b.Legs[b.Leg].Device])
	}
}

// arrived ends the transit of the batch at a position in onWay.
func (r *routes) arrived(at int) {
	b := r.onWay[at]
	r.onWay = slices.Delete(r.onWay, at, at+1)
	r.vacate(b)
	if b.Transit == awaiting {
		r.blocked--
	} else if r.links != nil {
		r.sends.clear(r.links[b.device.index])
		r.receives.clear(r.links[b.Legs[b.Leg].Device])
	}
	b.Transit = settled
	r.reserve(b)
}

// strand loses what waits for links with a worker that is lost.
func (r *routes) strand(sv *service, device int) {
	for at := 0; at < len(r.onWay); at++ {
		if b := r.onWay[at]; b.Transit == awaiting && b.service == sv && b.device.index == device {
			r.arrived(at)
			r.s.again(b, models.SpanLost)
			at--
		}
	}
}

// recall gives up a batch that waits for links and that nobody wants. One whose move is
// under way is in use until that has ended.
func (r *routes) recall(b *batch) (inUse bool) {
	if b.Transit == awaiting && !b.wanted() {
		r.arrived(slices.Index(r.onWay, b))
		r.s.abandon(b, Cancelled, ReasonCancelled)
		return false
	}
	return true
}

// moves of a service that wait or are under way.
func (r *routes) under(sv *service) (n int) {
	for _, b := range r.onWay {
		if b.service == sv {
			n++
		}
	}
	return n
}

// Limits of what moves are learned to take, against what a pipeline says.
const (
	moveInertia = 8.0
	mostTravel  = 16.0
)

// learn takes in how long the move of a batch has taken.
func (r *routes) learn(b *batch, took time.Duration) {
	planned := float64(b.Legs[b.Leg-1].Move) * float64(b.Size)
	if planned <= 0 || took <= 0 || r.blind {
		return
	}
	sv := b.service
	if sv.Travel == 0 {
		sv.Travel = 1
	}
	sv.Travel += (min(float64(took)/planned, mostTravel) - sv.Travel) / moveInertia
}
