package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// releaseLook is how often a removal looks whether the last input and output
// were given back.
const releaseLook = 2 * time.Millisecond

// services are the services by ID. They are read without a lock: whoever adds
// or removes one puts another map in the place of this one.
type services map[models.ServiceID]*service

// service returns the service with this ID, or nil.
func (e *Executor) service(id models.ServiceID) *service { return (*e.services.Load())[id] }

// changeLocked puts a changed copy of the services in their place.
func (e *Executor) changeLocked(change func(services)) {
	next := maps.Clone(*e.services.Load())
	change(next)
	e.services.Store(&next)
}

// Add adds a service. Its worker is started at once, or at Start if that is
// still to come, or at Resume while workers are held. The error is ErrInUse if there is a service with this ID.
func (e *Executor) Add(spec ServiceSpec) error {
	spec = spec.withDefaults()
	if err := spec.validate(); err != nil {
		return err
	}
	arena, err := wire.NewInputArena(spec.InputBytes)
	if err != nil {
		return fmt.Errorf("service %s: %w", spec.Name, err)
	}
	s := &service{executor: e, spec: spec, arena: arena, restart: make(chan struct{}, 1)}
	if err := e.enter(s); err != nil {
		_, cerr := arena.Close()
		return errors.Join(err, cerr)
	}
	return nil
}

func (e *Executor) enter(s *service) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return ErrClosed
	}
	if other := e.service(s.spec.ID); other != nil {
		return fmt.Errorf("%w: %d is that of service %s; wait until it is removed, or take another", ErrInUse, s.spec.ID, other.spec.Name)
	}
	e.changeLocked(func(list services) { list[s.spec.ID] = s })
	if e.mu.held != nil {
		s.hold(e.mu.held)
	}
	if e.mu.started {
		s.begin(e.ctx)
	}
	return nil
}

// begin starts the supervisor. The executor is locked.
func (s *service) begin(ctx context.Context) {
	ctx, s.end = context.WithCancelCause(ctx)
	s.start(func() { s.supervise(ctx) })
}

// start runs f in a goroutine that Close and Remove wait for.
func (s *service) start(f func()) {
	s.threads.Add(1)
	s.executor.workers.Go(func() {
		defer s.threads.Done()
		f()
	})
}

// Remove ends a service. It returns at once; the channel tells when nothing is
// left of it, and is then closed: its worker was asked to exit, and killed if
// it did not within CloseGrace, a worker that loads at once; its spans in
// flight were stopped or lost, and Outcomes delivers, or holds, the outcome of
// each of its rounds; its last event was WorkerStopped; its inputs were freed
// and its outputs released. Until then its ID is in use, Arena still returns
// its arena, and spans of it are lost with ErrRemoved. After that the ID can be
// added again.
//
// What comes is nil, or ErrLeak if inputs or outputs are still in use
// ReleaseGrace after the worker is gone, or when the executor closes. The
// service then takes no more inputs, and its memory stays mapped until the last
// is given back; since that is done by its ID, the ID stays in use until
// another Remove ends with nil.
func (e *Executor) Remove(id models.ServiceID) (<-chan error, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.service(id)
	switch {
	case e.mu.closed:
		return nil, ErrClosed
	case s == nil:
		return nil, fmt.Errorf("%w: %d", ErrUnknownService, id)
	case s.leaves:
		return nil, fmt.Errorf("%w: %s, already; wait for the first Remove", ErrRemoved, s.spec.Name)
	}
	s.leaves = true
	s.mu.Lock()
	s.mu.gone = ErrRemoved
	s.mu.Unlock()
	if s.end != nil {
		s.end(ErrRemoved)
	}
	gone := make(chan error, 1)
	e.workers.Go(func() {
		defer close(gone)
		gone <- e.dismantle(s)
	})
	return gone, nil
}

// dismantle returns when nothing is left of a service that ends.
func (e *Executor) dismantle(s *service) error {
	s.threads.Wait()
	s.awaitUnused()
	err := s.close()
	e.mu.Lock()
	defer e.mu.Unlock()
	s.leaves = false
	// What an executor that closes did not get back, it says itself.
	if err == nil && !e.mu.closed {
		e.changeLocked(func(list services) { delete(list, s.spec.ID) })
	}
	return err
}

// awaitUnused returns when nothing of a service without a worker is in use, or
// it has been waited for long enough. A round always ends; what a client reads
// may not.
func (s *service) awaitUnused() {
	ticker := time.NewTicker(releaseLook)
	defer ticker.Stop()
	for s.rounds.Load() > 0 {
		<-ticker.C
	}
	limit := time.NewTimer(s.executor.opts.ReleaseGrace)
	defer limit.Stop()
	for s.arena.Used() > 0 || s.leases() > 0 {
		select {
		case <-ticker.C:
		case <-limit.C:
			return
		case <-s.executor.closing:
			return
		}
	}
}

// close gives up the arena of a service without a worker.
func (s *service) close() error {
	inputs, err := s.arena.Close()
	if err != nil {
		return err
	}
	if outputs := s.leases(); inputs > 0 || outputs > 0 {
		return fmt.Errorf("%w: service %s has %d inputs and %d outputs in use", ErrLeak, s.spec.Name, inputs, outputs)
	}
	return nil
}
