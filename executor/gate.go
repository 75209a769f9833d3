package executor

import (
	"context"
	"fmt"
	"sync"
)

// gate decides whether a worker of a service may start. Hold shuts it: that ends a
// worker that is starting or running, and yields a channel that is closed when
// nothing is left of its process.
type gate struct {
	mu struct {
		sync.Mutex

		// held is why no worker may start, nil if one may. free is closed when
		// the gate opens again.
		held error
		free chan struct{}

		// end ends the current worker. over is closed when nothing is left of its
		// process; it is nil if there is none.
		end  context.CancelCauseFunc
		over chan struct{}
	}
}

// closed is a closed channel, for a hold with nothing to wait for.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// hold shuts the gate and ends the worker, even one that is just starting. It
// returns a channel that is closed when the worker's process is gone.
func (g *gate) hold(cause error) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.held == nil {
		g.mu.free = make(chan struct{})
	}
	g.mu.held = fmt.Errorf("%w: %w", ErrHeld, cause)
	if g.mu.over == nil {
		return closed
	}
	g.mu.end(g.mu.held)
	return g.mu.over
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.held != nil {
		g.mu.held = nil
		close(g.mu.free)
	}
}

// enter waits until a worker may start, and returns a context that ends when the
// gate is held. The caller then starts a worker, and calls leave when it is gone:
// hold waits for that. enter returns nil when ctx ends.
func (g *gate) enter(ctx context.Context) (life context.Context) {
	for ctx.Err() == nil {
		g.mu.Lock()
		free := g.mu.free
		if g.mu.held == nil {
			life, g.mu.end = context.WithCancelCause(context.WithoutCancel(ctx))
			g.mu.over = make(chan struct{})
		}
		g.mu.Unlock()
		if life != nil {
			return life
		}
		select {
		case <-free:
		case <-ctx.Done():
		}
	}
	return nil
}

// leave records that nothing is left of a worker's process, or that its start
// failed.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.mu.over)
	g.mu.over = nil
}
