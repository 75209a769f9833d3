package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// moving is a batch that moves from one device to another.
type moving struct {
	Moved
	from, to *node
	begun    bool

	// over is set once the move has ended. Its timer then has no effect.
	over bool
}

// moves are the batches that currently move. A link carries one batch out and one in at a
// time. When links become free, the first waiting batch for which both links are free
// starts.
type moves struct {
	// links holds the link of each device. It is nil if moves do not wait for links.
	links []int

	// out and in hold the links that currently carry a batch in that direction.
	out, in map[int]bool

	// under lists the moves that are not over, in the order in which they were requested.
	under []*moving

	// each holds for each service the time that a query adds to a move, by the operator
	// with which the batch continues.
	each []map[int]time.Duration

	count  moveTally
	waited time.Duration
	took   time.Duration
}

// moveTally counts moves. It includes lost moves, but not in the times.
type moveTally struct {
	Moves int `json:"moves"`
	Lost  int `json:"lost"`

	// WaitedMS is the mean time for which moves waited for links. TookMS is the mean time
	// of the transfer.
	WaitedMS float64 `json:"waited_ms"`
	TookMS   float64 `json:"took_ms"`
}

// newMoves returns the moves of a scenario, with the time that a query of each service adds
// to a move.
func newMoves(sc *Scenario) moves {
	m := moves{links: sc.Links, out: map[int]bool{}, in: map[int]bool{}, each: make([]map[int]time.Duration, len(sc.Services))}
	for i := range sc.Services {
		m.each[i] = map[int]time.Duration{}
		for _, p := range sc.Services[i].Pipelines {
			for _, s := range p.Stages {
				m.each[i][s.End] = s.Move
			}
		}
	}
	return m
}

// move starts a move, or queues it until its links are free.
func (c *control) move(m overlap.Move) error {
	if m.Device == m.To || c.nodes[m.Device].down[m.Service] || c.nodes[m.To].down[m.Service] {
		return fmt.Errorf("%w: batch %d cannot move from device %d to %d", ErrInvariant, m.Batch, m.Device, m.To)
	}
	w := c.world
	w.moves.under = append(w.moves.under, &moving{Moved: Moved{Move: m, Asked: w.now}, from: c.nodes[m.Device], to: c.nodes[m.To]})
	w.goOn()
	return nil
}

// goOn starts the queued moves whose links are free.
func (w *world) goOn() {
	m := &w.moves
	for _, b := range m.under {
		if b.begun || m.links != nil && (m.out[m.links[b.from.index]] || m.in[m.links[b.to.index]]) {
			continue
		}
		b.begun, b.Start = true, w.now
		m.hold(b, true)
		w.timers.push(timer{at: w.now + m.each[b.Service][b.Operator]*time.Duration(b.Size), kind: moveEnds, move: b})
	}
}

// hold marks the links of a move as busy or free.
func (m *moves) hold(b *moving, held bool) {
	if m.links != nil {
		m.out[m.links[b.from.index]], m.in[m.links[b.to.index]] = held, held
	}
}

// arrived ends a move when its timer fires.
func (w *world) arrived(b *moving) error {
	if b.over {
		return nil
	}
	return w.endMove(b, models.SpanDone)
}

// loseMoves ends, as lost, the moves of a service from and to a device whose worker has
// died.
func (w *world) loseMoves(n *node, service models.ServiceID) error {
	for _, b := range slices.Clone(w.moves.under) {
		if b.Service == service && (b.from == n || b.to == n) {
			if err := w.endMove(b, models.SpanLost); err != nil {
				return err
			}
		}
	}
	return nil
}

// endMove reports to the scheduler that a batch has arrived or is lost, and starts queued
// moves.
func (w *world) endMove(b *moving, status models.Status) error {
	m := &w.moves
	b.over, b.End, b.Status = true, w.now, status
	m.under = slices.DeleteFunc(m.under, func(o *moving) bool { return o == b })
	if b.begun {
		m.hold(b, false)
	} else {
		b.Start = w.now
	}
	m.count.Moves++
	if status == models.SpanDone {
		m.waited += b.Start - b.Asked
		m.took += b.End - b.Start
	} else {
		m.count.Lost++
	}
	w.goOn()
	if w.scenario.Observer.Move != nil {
		w.scenario.Observer.Move(&b.Moved)
	}
	c := b.from.control
	c.touched()
	if err := c.step(overlap.Event{Kind: overlap.Moved, Move: b.Move, Took: b.End - b.Asked, Status: status}); err != nil {
		return fmt.Errorf("%w: %w", ErrInvariant, err)
	}
	return nil
}

// sum returns the totals of a run, or nil if nothing was moved.
func (m *moves) sum() *moveTally {
	if m.count.Moves == 0 {
		return nil
	}
	count := m.count // a copy, so that the result does not keep the run in memory
	done := float64(count.Moves - count.Lost)
	count.WaitedMS, count.TookMS = ratio(millis(m.waited), done), ratio(millis(m.took), done)
	return &count
}
