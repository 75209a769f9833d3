package segments

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// The budget of a model covers everything that its batches need in addition to the weights:
// frames, values that ONNX Runtime allocates, and, on the CPU, the scratch memory of
// operators. Scratch memory cannot be planned, so it is limited when it is allocated.

// bytes returns the memory of running and paused batches, and of frames kept for later
// batches.
func (p *pool) bytes() int64 {
	total := p.used
	for _, b := range p.batches {
		total += b.bytes
	}
	return total
}

// bounded runs f, which works for b on the host, and limits the arena to what remains of the
// budget, unless that is for the memory of a GPU. Afterwards it updates b.bytes. If the arena is full,
// bounded closes the idle frames, or waits until a run beside this one has ended, and runs f again. That
// is safe because an operator allocates its memory before it writes.
func (p *pool) bounded(b *batch, f func() error) error {
	for {
		err := p.boundedOnce(b, f)
		switch {
		case !errors.Is(err, ort.ErrArenaFull):
			return err
		case len(p.idle) > 0:
			p.closeAllIdle()
		case !p.awaitRun():
			return p.excess(b, err)
		}
	}
}

// awaitRun waits until a run in progress has ended. It is false if there is none, as for a run that
// waits itself.
func (p *pool) awaitRun() bool {
	if p.bounding == 0 {
		return false
	}
	p.of.shares.freed.Wait()
	return true
}

// boundedOnce runs f once with the arena limited to what remains of the budget. While f runs
// operators, others may run for other batches, under the same limit. The thread tells what
// f has taken from what they have.
func (p *pool) boundedOnce(b *batch, f func() error) error {
	if p.of.far {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	env, held := p.of.env, b.bytes
	if p.bounding == 0 {
		p.base = env.ArenaBytes() - (p.bytes() - p.used) - p.of.shares.bytes
	}
	p.bounding++
	before := env.ThreadBytes()
	env.LimitArena(p.base + p.of.shares.bytes + p.budget - p.used)
	err := f()
	b.bytes = held + env.ThreadBytes() - before
	if p.bounding--; p.bounding == 0 {
		env.UnlimitArena()
	}
	p.of.shares.freed.Broadcast()
	return err
}

// makeRoom closes idle frames until the given number of additional bytes fits into the
// budget. It reports whether they fit.
func (p *pool) makeRoom(bytes int64) bool {
	for p.bytes()+bytes > p.budget && len(p.idle) > 0 {
		p.closeIdle(0)
	}
	return p.bytes()+bytes <= p.budget
}

// workBytes returns the scratch memory to reserve for the batches and one more with layout
// l. It is the sum of the largest needs of as many of them as run at once.
func (p *pool) workBytes(l *layout) (sum int64) {
	needs := []int64{l.work}
	for _, b := range p.batches {
		if b.frame.layout != nil {
			needs = append(needs, b.frame.layout.work)
		}
	}
	slices.Sort(needs)
	for _, n := range needs[max(len(needs)-max(p.of.shares.units, 1), 0):] {
		sum += n
	}
	return sum
}

// check returns an error if b has grown beyond the budget.
func (p *pool) check(b *batch) error {
	if p.makeRoom(0) {
		return nil
	}
	return p.excess(b, fmt.Errorf("a batch of %d needs %d bytes at operator %d", b.size, b.bytes, b.next))
}

// excess returns the error for a batch that exceeds the budget. A single query that has the
// whole budget to itself can never run, so its error is also wire.ErrTooLarge. Other
// batches may fit later, or as single queries.
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
		wire.ErrMemory, why, p.bytes(), p.budget, others)
}

// closeAllIdle frees all frames that are kept for later batches.
func (p *pool) closeAllIdle() {
	for len(p.idle) > 0 {
		p.closeIdle(0)
	}
}

// trim returns memory that no batch needs to the operating system.
func (p *pool) trim() {
	p.closeAllIdle()
	p.of.env.Trim()
}
