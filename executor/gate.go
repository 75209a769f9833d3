package executor

import (
	"context"
	"fmt"
	"sync"
)

// gate decides whether a worker of a service may start. Whoever shuts it ends the
// worker that starts or lives, and learns when nothing is left of its process.
type gate struct {
	mu struct {
		sync.Mutex
		held error                   // why none may start, nil if one may
		free chan struct{}           // closed when it is not held any more
		end  context.CancelCauseFunc // ends the worker
		over chan struct{}           // closed when nothing is left of its process, nil if there is none
	}
}

// closed is a channel on which nobody waits.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// hold loses the worker, if there is one or one just starts, and returns what is
// closed when its process is gone.
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

// enter returns when a worker may start, which the caller then does, with the
// context that ends when the gate is held; or nil when ctx ends. Whoever holds the
// gate from then on waits until leave.
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

// leave is called when nothing is left of a worker's process, or none came of a
// start.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.mu.over)
	g.mu.over = nil
}
