package executor

import (
	"context"
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// Hold ends the workers of some services together and starts none of them
// until Resume. It returns when all of their processes are gone, or when ctx
// ends: then they are held nevertheless. What they ran is lost with the cause
// and can be run again. No such loss counts towards giving a service up.
func (e *Executor) Hold(ctx context.Context, ids []models.ServiceID, cause error) error {
	held, err := e.find(ids)
	if err != nil {
		return err
	}
	gone := make([]<-chan struct{}, len(held))
	for i, s := range held {
		gone[i] = s.hold(cause)
	}
	for i, s := range held {
		select {
		case <-gone[i]:
		case <-ctx.Done():
			return fmt.Errorf("the worker of service %s does not end: %w", s.spec.Name, ctx.Err())
		}
	}
	return nil
}

// Resume lets the workers of services that Hold stopped start again.
func (e *Executor) Resume(ids []models.ServiceID) error {
	held, err := e.find(ids)
	for _, s := range held {
		s.resume()
	}
	return err
}

// find returns the services with these IDs.
func (e *Executor) find(ids []models.ServiceID) ([]*service, error) {
	var found []*service
	for _, id := range ids {
		s := e.service(id)
		if s == nil {
			return nil, fmt.Errorf("%w: %d", ErrUnknownService, id)
		}
		found = append(found, s)
	}
	return found, nil
}

// closed is a channel on which nobody waits.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// hold loses the worker, if there is one, and returns what is closed when its
// process is gone.
func (s *service) hold(cause error) <-chan struct{} {
	s.mu.Lock()
	if s.mu.held == nil {
		s.mu.free = make(chan struct{})
	}
	s.mu.held = fmt.Errorf("%w: %w", ErrHeld, cause)
	w, err := s.mu.living, s.mu.held
	s.mu.Unlock()
	if w == nil {
		return closed
	}
	w.lose(err)
	return w.gone
}

func (s *service) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.held != nil {
		s.mu.held = nil
		close(s.mu.free)
	}
}

// held returns why no worker may start, nil if one may.
func (s *service) held() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.held
}

// awaitFree returns when a worker may start, or ctx ends.
func (s *service) awaitFree(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		held, free := s.mu.held, s.mu.free
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
