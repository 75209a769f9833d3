package executor

import (
	"context"
	"fmt"
	"sync"
)

// gate decides whether a worker of a service may start. Whoever shuts it learns
// when nothing is left of the process that had passed it.
type gate struct {
	mu struct {
		sync.Mutex
		held   error         // why none may start, nil if one may
		free   chan struct{} // closed when it is not held any more
		over   chan struct{} // closed when nothing is left of the process that starts or lives, nil if there is none
		doomed error         // why the process that starts may not stay, nil if it may
		living *worker       // has a process, ready or not
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
	if g.mu.held == nil {
		g.mu.free = make(chan struct{})
	}
	g.mu.held = fmt.Errorf("%w: %w", ErrHeld, cause)
	w, over, err := g.mu.living, g.mu.over, g.mu.held
	if over != nil {
		g.mu.doomed = err
	}
	g.mu.Unlock()
	if over == nil {
		return closed
	}
	if w != nil {
		w.lose(err)
	}
	return over
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.held != nil {
		g.mu.held = nil
		close(g.mu.free)
	}
}

// enter returns true when a worker may start, which the caller then does, or
// false when ctx ends. Whoever holds the gate from then on waits until leave.
func (g *gate) enter(ctx context.Context) bool {
	for ctx.Err() == nil {
		g.mu.Lock()
		held, free := g.mu.held, g.mu.free
		if held == nil {
			g.mu.over, g.mu.doomed = make(chan struct{}), nil
		}
		g.mu.Unlock()
		if held == nil {
			return true
		}
		select {
		case <-free:
		case <-ctx.Done():
		}
	}
	return false
}

// pass takes in the worker that was started. It returns why that may not stay, if
// the gate was held meanwhile, even if it is not any more.
func (g *gate) pass(w *worker) (doomed error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.living = w
	return g.mu.doomed
}

// leave is called when nothing is left of a worker's process, or none came of a
// start.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.living = nil
	close(g.mu.over)
	g.mu.over = nil
}
