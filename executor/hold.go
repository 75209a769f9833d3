package executor

import (
	"context"
	"fmt"
)

// Hold ends the workers of all services together and starts none until Resume,
// also none of a service that is added meanwhile. It returns when all of their
// processes are gone, or when ctx ends: then they are held nevertheless. What they
// ran is lost with the cause and can be run again. No such loss counts towards
// giving a service up.
func (e *Executor) Hold(ctx context.Context, cause error) error {
	for name, gone := range e.holdAll(cause) {
		select {
		case <-gone:
		case <-ctx.Done():
			return fmt.Errorf("the worker of service %s does not end: %w", name, ctx.Err())
		}
	}
	return nil
}

// holdAll returns what is closed when the process of a service is gone, by name
// and ID.
func (e *Executor) holdAll(cause error) map[string]<-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.held = cause
	gone := make(map[string]<-chan struct{})
	for id, s := range *e.services.Load() {
		gone[fmt.Sprintf("%s (%d)", s.spec.Name, id)] = s.hold(cause)
	}
	return gone
}

// Resume lets the workers that Hold stopped start again.
func (e *Executor) Resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.held = nil
	for _, s := range *e.services.Load() {
		s.resume()
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
func (s *service) hold(cause error) <-chan struct{} {
	s.mu.Lock()
	if s.mu.held == nil {
		s.mu.free = make(chan struct{})
	}
	s.mu.held = fmt.Errorf("%w: %w", ErrHeld, cause)
	w, over, err := s.mu.living, s.mu.over, s.mu.held
	if over != nil {
		s.mu.doomed = err
	}
	s.mu.Unlock()
	if over == nil {
		return closed
	}
	if w != nil {
		w.lose(err)
	}
	return over
}

func (s *service) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.held != nil {
		s.mu.held = nil
		close(s.mu.free)
	}
}

// awaitFree returns when a worker may start, which the caller then does, or ctx
// ends. Whoever holds the service from then on waits until setGone.
func (s *service) awaitFree(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		held, free := s.mu.held, s.mu.free
		if held == nil {
			s.mu.over, s.mu.doomed = make(chan struct{}), nil
		}
		s.mu.Unlock()
		if held == nil {
			return
		}
		select {
		case <-free:
		case <-ctx.Done():
		}
	}
}
