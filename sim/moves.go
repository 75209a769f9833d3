package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// moving is a batch on its way from one device to another.
type moving struct {
	Moved
	from, to *node
	begun    bool
	over     bool // its timer has nothing to say any more
}

// moves are the batches on their way. A link carries one out and one in at a time: of those
// that wait, the first for which both sides are free goes next.
type moves struct {
	links   []int        // of each device, nil if nothing waits
	out, in map[int]bool // links that carry one
	under   []*moving    // asked for and not over, in that order
	each    []map[int]time.Duration
	count   moveTally
	waited  time.Duration
	took    time.Duration
}

// moveTally counts moves. Those that were lost count, and not in the times.
type moveTally struct {
	Moves    int     `json:"moves"`
	Lost     int     `json:"lost"`
	WaitedMS float64 `json:"waited_ms"` // for links, in the mean
	TookMS   float64 `json:"took_ms"`   // after that, in the mean
}

// newMoves finds out what each query adds to the moves of a service, by the operator that
// they go on with.
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

// move begins a move, or has it wait for the links.
func (c *control) move(m overlap.Move) error {
	if m.Device == m.To || c.nodes[m.Device].down[m.Service] || c.nodes[m.To].down[m.Service] {
		return fmt.Errorf("%w: a move of batch %d from device %d to %d", ErrInvariant, m.Batch, m.Device, m.To)
	}
	w := c.world
	w.moves.under = append(w.moves.under, &moving{Moved: Moved{Move: m, Asked: w.now}, from: c.nodes[m.Device], to: c.nodes[m.To]})
	w.goOn()
	return nil
}

// goOn begins the moves whose links are free.
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

// hold takes the links of a move, or gives them back.
func (m *moves) hold(b *moving, held bool) {
	if m.links != nil {
		m.out[m.links[b.from.index]], m.in[m.links[b.to.index]] = held, held
	}
}

// arrived ends a move whose time is over.
func (w *world) arrived(b *moving) error {
	if b.over {
		return nil
	}
	return w.endMove(b, models.SpanDone)
}

// loseMoves ends the moves of a service from and to a device on which its worker was lost.
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

// endMove hands over a batch that has moved, or tells that it is lost.
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
	if err := c.scheduler.Moved(w.now, b.Move, b.End-b.Asked, status); err != nil {
		return fmt.Errorf("%w: %w", ErrInvariant, err)
	}
	return c.settle()
}

// sum sums up a run, nil if nothing was moved.
func (m *moves) sum() *moveTally {
	if m.count.Moves == 0 {
		return nil
	}
	count := m.count // by itself, so that a result does not keep the run in memory
	done := float64(count.Moves - count.Lost)
	count.WaitedMS, count.TookMS = ratio(millis(m.waited), done), ratio(millis(m.took), done)
	return &count
}
