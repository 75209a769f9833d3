package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// removalTimeout is how long a reload waits for a service that it takes
	// away to answer what it has accepted, before it loads others in its place.
	// Requests that still arrive hold it, too. It goes in any case.
	removalTimeout = 30 * time.Second

	// newsLimit is how much progress of a load may wait to be told; what does
	// not fit is not.
	newsLimit = 64
)

// errCutShort is why a service is not loaded when a reload is cut short.
var errCutShort = errors.New("the reload was cut short")

// remove takes services away, and then waits until they are gone.
func (r *reload) remove() error {
	gone := make([]chan struct{}, len(r.done.Removed))
	for i, name := range r.done.Removed {
		gone[i] = make(chan struct{})
		u := r.unitOf(name)
		if !u.backend.ask(func(l *loop) { l.retire(l.serving(name), gone[i]) }) {
			return ErrStopping
		}
		r.gather()
		r.holds(name)
	}
	limit, cancel := context.WithTimeout(r.ctx, removalTimeout)
	defer cancel()
	for i, name := range r.done.Removed {
		select {
		case <-gone[i]:
		case <-limit.Done():
		}
		r.progress(ReloadStep{Service: name, State: StepDone})
	}
	return context.Cause(r.ctx)
}

// change gives a service other targets.
func (r *reload) change(name string) error {
	u, next := r.unitOf(name), r.next.Service(name)
	var err error
	if !u.backend.ask(func(l *loop) { err = l.change(u, l.serving(name), next) }) {
		return ErrStopping
	}
	r.gather()
	return r.ended(name, err)
}

// load adds a service, or replaces one.
func (r *reload) load(name string) error {
	r.progress(ReloadStep{Service: name, State: StepLoading})
	u := r.unitOf(name)
	if u == nil {
		return r.ended(name, fmt.Errorf("it is on no instance of the GPU: name it in one, and restart the daemon if that is a new one"))
	}
	j := &joining{news: make(chan ReloadStep, newsLimit), ready: make(chan error, 1)}
	s, err := u.join(r.next.Service(name), j)
	if err != nil {
		return r.ended(name, err)
	}
	return r.await(name, u, s, j)
}

// await returns when a service has joined or does not, or when the reload is cut
// short.
func (r *reload) await(name string, u *unit, s *slot, j *joining) error {
	for {
		select {
		case step := <-j.news:
			r.progress(step)
		case err := <-j.ready:
			r.gather()
			return r.ended(name, err)
		case <-r.ctx.Done():
			err := errCutShort
			if u.backend.ask(func(l *loop) { l.withdraw(s, errCutShort) }) {
				err = <-j.ready // it may have joined before
			}
			r.gather()
			_ = r.ended(name, err) // which ends nothing
			return context.Cause(r.ctx)
		}
	}
}

// ended tells what became of a service. That one could not be loaded ends
// nothing.
func (r *reload) ended(name string, err error) error {
	if err != nil {
		r.done.Failed[name] = err.Error()
		r.progress(ReloadStep{Service: name, State: StepFailed})
		return nil
	}
	r.holds(name)
	r.progress(ReloadStep{Service: name, State: StepDone})
	return nil
}
