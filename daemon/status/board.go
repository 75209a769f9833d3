package status

import (
	"sync"
	"sync/atomic"
)

// Board is where one goroutine publishes its latest status for all others. It makes
// one only when somebody wants it, and all who ask before it begins share that, so
// however many ask, one at a time is made. Nobody is told what was before they
// came.
type Board struct {
	wanted atomic.Bool
	latest atomic.Pointer[Status]

	mu struct {
		sync.Mutex
		next   chan struct{} // closed when the next status is there, nil if nobody waits
		shapes bool          // somebody who waits wants the shapes
	}
}

// Want asks for a status, with the shapes of the predictor or without, which are
// what a status costs most. The channel is closed once there is one that was begun
// after the call. First is set if nobody else had asked: the goroutine that publishes
// may have to be woken.
func (b *Board) Want(shapes bool) (published <-chan struct{}, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.shapes = b.mu.shapes || shapes
	if b.mu.next == nil {
		b.mu.next, first = make(chan struct{}), true
		b.wanted.Store(true)
	}
	return b.mu.next, first
}

// Latest returns the last status, nil before the first.
func (b *Board) Latest() *Status { return b.latest.Load() }

// Publish publishes what status returns, if somebody wants it. Else it costs a look
// at a flag.
func (b *Board) Publish(status func(shapes bool) *Status) {
	if !b.wanted.Load() {
		return
	}
	b.mu.Lock()
	waiting, shapes := b.mu.next, b.mu.shapes
	b.mu.next, b.mu.shapes = nil, false // who comes from now on shares the next one
	b.wanted.Store(false)
	b.mu.Unlock()
	b.latest.Store(status(shapes))
	close(waiting)
}
