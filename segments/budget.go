package segments

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// The budget of a model is for all that its batches need beside its weights: their
// frames, the values that ONNX Runtime allocates, and on the CPU what operators work
// in. What they work in cannot be planned: it is bounded where it is allocated.

// IntermediateBytes returns the memory held for intermediates: of running and
// paused batches, and what is kept for the next ones.
func (p *pool) IntermediateBytes() int64 {
	total := p.used
	for _, b := range p.batches {
		total += b.bytes
	}
	return total
}

// bounded runs f, which works for b on the CPU, within what is left of the budget, and
// counts what b holds afterwards. Where that is not enough, the frames that are kept
// for later batches make room and f runs again: an operator takes its memory before
// it writes.
func (p *pool) bounded(b *batch, f func() error) error {
	for {
		err := p.boundedOnce(b, f)
		switch {
		case !errors.Is(err, ort.ErrArenaFull):
			return err
		case len(p.idle) == 0:
			return p.excess(b, err)
		}
		p.closeAllIdle()
	}
}

func (p *pool) boundedOnce(b *batch, f func() error) error {
	env, held := p.of.env, b.bytes
	before := env.ArenaBytes()
	env.LimitArena(p.budget - p.IntermediateBytes())
	err := f()
	env.UnlimitArena()
	b.bytes = held + env.ArenaBytes() - before
	return err
}

// makeRoom closes idle frames until so many bytes more are within the budget,
// and reports whether they are.
func (p *pool) makeRoom(bytes int64) bool {
	for p.IntermediateBytes()+bytes > p.budget && len(p.idle) > 0 {
		p.closeIdle(0)
	}
	return p.IntermediateBytes()+bytes <= p.budget
}

// workBytes returns what the batches and one more of layout l may need to work in
// besides their frames: one of them runs at a time.
func (p *pool) workBytes(l *layout) int64 {
	most := l.work
	for _, b := range p.batches {
		if b.frame.layout != nil {
			most = max(most, b.frame.layout.work)
		}
	}
	return most
}

// check returns the error of a batch that has grown over the budget.
func (p *pool) check(b *batch) error {
	if p.makeRoom(0) {
		return nil
	}
	return p.excess(b, fmt.Errorf("a batch of %d needs %d bytes at operator %d", b.size, b.bytes, b.next))
}

// excess returns the error of a batch for which the budget is too small. One query
// that had it all to itself can never run; others may find room, alone or later.
func (p *pool) excess(b *batch, why error) error {
	others := len(p.batches)
	if p.batches[b.id] == b {
		others--
	}
	if others == 0 && len(b.sizes) == 1 {
		remedy := "raise worker.intermediate_bytes"
		if p.of.far {
			remedy += " or the GPU memory limit of the service"
		}
		return fmt.Errorf("%w: %w: %w; the budget is %d bytes: send a smaller query, or %s", wire.ErrTooLarge, wire.ErrMemory, why, p.budget, remedy)
	}
	return fmt.Errorf("%w: %w; %d of %d bytes (worker.intermediate_bytes) are in use by %d other batches",
		wire.ErrMemory, why, p.IntermediateBytes(), p.budget, others)
}

func (p *pool) closeAllIdle() {
	for len(p.idle) > 0 {
		p.closeIdle(0)
	}
}

// trim gives back to the system what no batch needs.
func (p *pool) trim() {
	p.closeAllIdle()
	p.of.env.Trim()
}
