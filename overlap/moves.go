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

// transit is how far the move of a batch is.
type transit uint8

const (
	settled  transit = iota // the batch is on its device
	awaiting                // its intermediates are still there, and wait for links
	moving                  // it is in Moves, and was not told to Moved
)

// transits are the services that have pipelines, and their batches that are between two devices.
type transits struct {
	// piped are the services that have pipelines, by ID.
	piped []*service

	// onWay are the batches between two devices, in the order in which they left. blocked is the
	// number of them that wait for links.
	onWay   []*batch
	blocked int
}

// queued returns how many queries wait for a reservation.
func (t *transits) queued() (n int) {
	for _, sv := range t.piped {
		n += sv.queue.len()
	}
	return n
}

// under returns how many moves of a service wait or are under way.
func (t *transits) under(sv *service) (n int) {
	for _, b := range t.onWay {
		if b.service == sv {
			n++
		}
	}
	return n
}

// moved takes in that a batch has arrived with its intermediates, which its source holds
// no more, or, with a status other than SpanDone, that they are lost: its queries then run
// again from their inputs, as those of a worker that is lost. Every Move must be followed
// by one call of Moved. Until then nobody in the batch is answered.
func (r *routes) moved(now time.Duration, m Move, took time.Duration, status models.Status) error {
	s := r.s
	s.backlog.clock(now)
	at := slices.IndexFunc(r.s.backlog.onWay, func(b *batch) bool { return b.Transit == moving && b.held() == m.Held && b.At().Device == m.To })
	if at < 0 {
		return ErrUnknownRound
	}
	b := r.s.backlog.onWay[at]
	s.overturn()
	r.arrived(at)
	if status == models.SpanDone {
		r.tables.Moved(&b.service.line, &b.Way, b.Size, took)
		b.device = s.backlog.host.devices[m.To]
	} else if b.service.up.has(m.Device) {
		s.backlog.release(b)
	}
	switch {
	case status != models.SpanDone:
		s.backlog.again(b, models.SpanLost)
	case !b.service.up.has(m.To):
		s.backlog.again(b, models.SpanLost)
	case !b.wanted():
		s.backlog.abandon(b, Cancelled, ReasonCancelled)
	default:
		r.tables.Correct(&b.Way, max(s.backlog.now, b.At().Start), b.At().Took)
		s.backlog.pause(b)
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
	r.s.backlog.onWay = append(r.s.backlog.onWay, b)
	if b.Transit == awaiting {
		r.s.backlog.blocked++
	} else {
		r.tables.Occupy(b.device.index, b.At().Device, true)
	}
}

// reroute finds the way of a batch on from the end of a stage again.
func (r *routes) reroute(b *batch) {
	r.tables.Reroute(r.s.backlog.now, &b.Way, &b.service.line, b.device.index, b.Next, b.Size, b.SeqLen)
}

// depart begins the moves whose time has come and whose links are free, the one first that
// was reserved first. A batch whose device has gone down is sent elsewhere.
func (r *routes) depart() {
	for r.s.backlog.blocked > 0 {
		first := -1
		for i, b := range r.s.backlog.onWay {
			if b.Transit != awaiting || !r.ready(b) {
				continue
			}
			if first < 0 || b.At().Depart < r.s.backlog.onWay[first].At().Depart {
				first = i
			}
		}
		if first < 0 {
			return
		}
		b := r.s.backlog.onWay[first]
		to := b.At().Device
		switch {
		case to == b.device.index:
			r.arrived(first)
			r.s.backlog.pause(b)
		case !b.service.runnable(to):
			r.reroute(b)
		default:
			b.Transit = moving
			r.s.backlog.blocked--
			r.tables.Occupy(b.device.index, b.At().Device, true)
			r.s.backlog.moves.add(b.move())
		}
	}
}

// ready reports whether the move of a batch may begin.
func (r *routes) ready(b *batch) bool {
	g := b.At()
	if g.Device == b.device.index || !b.service.runnable(g.Device) {
		return true
	}
	return g.Depart <= r.s.backlog.now && !r.tables.Occupied(b.device.index, g.Device)
}

// arrived ends the transit of the batch at a position in onWay.
func (r *routes) arrived(at int) {
	b := r.s.backlog.onWay[at]
	r.s.backlog.onWay = slices.Delete(r.s.backlog.onWay, at, at+1)
	r.vacate(b)
	if b.Transit == awaiting {
		r.s.backlog.blocked--
	} else {
		r.tables.Occupy(b.device.index, b.At().Device, false)
	}
	b.Transit = settled
	r.reserve(b)
}

// strand loses what waits for links with a worker that is lost.
func (r *routes) strand(sv *service, device int) {
	for at := 0; at < len(r.s.backlog.onWay); at++ {
		if b := r.s.backlog.onWay[at]; b.Transit == awaiting && b.service == sv && b.device.index == device {
			r.arrived(at)
			r.s.backlog.again(b, models.SpanLost)
			at--
		}
	}
}

// recall gives up a batch that waits for links and that nobody wants. One whose move is
// under way is in use until that has ended.
func (r *routes) recall(b *batch) (inUse bool) {
	if b.Transit == awaiting && !b.wanted() {
		r.arrived(slices.Index(r.s.backlog.onWay, b))
		r.s.backlog.abandon(b, Cancelled, ReasonCancelled)
		return false
	}
	return true
}
