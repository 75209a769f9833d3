package emulated

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

const (
	// releaseGrace is for how long a removal waits for what is in use, if
	// nothing else is said.
	releaseGrace = 30 * time.Second

	// releaseLook is how often it looks.
	releaseLook = 2 * time.Millisecond
)

// services are the services by ID. They are read without a lock: whoever adds
// or removes one puts another map in the place of this one.
type services map[models.ServiceID]*service

// service returns the service with this ID, or nil.
func (e *Executor) service(id models.ServiceID) *service { return (*e.services.Load())[id] }

// listed returns the services in the order of their IDs.
func (e *Executor) listed() []*service {
	return slices.SortedFunc(maps.Values(*e.services.Load()), func(a, b *service) int { return cmp.Compare(a.spec.ID, b.spec.ID) })
}

// changeLocked puts a changed copy of the services in their place.
func (e *Executor) changeLocked(change func(services)) {
	next := maps.Clone(*e.services.Load())
	change(next)
	e.services.Store(&next)
}

// Add adds a service, which is ready at once, or at Start if that is still to
// come. The error is [executor.ErrInUse] if there is a service with this ID.
func (e *Executor) Add(spec Service) error {
	if err := spec.validate(); err != nil {
		return err
	}
	s, err := newService(spec.withDefaults(), between{e})
	if err != nil {
		return err
	}
	if err := e.enter(s); err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

func (e *Executor) enter(s *service) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return executor.ErrClosed
	}
	if other := e.service(s.spec.ID); other != nil {
		return fmt.Errorf("%w: %d is that of service %s; wait until it is removed, or take another",
			executor.ErrInUse, s.spec.ID, other.spec.Name)
	}
	e.changeLocked(func(list services) { list[s.spec.ID] = s })
	if e.began {
		e.beginLocked(s)
	}
	return nil
}

// between asks the device between the questions of those who run rounds: it is
// asked by one at a time, and a new model has many questions.
type between struct{ *Executor }

func (b between) Latency(g models.Group) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opts.Device.Latency(g)
}

// beginLocked makes a service ready and tells so.
func (e *Executor) beginLocked(s *service) {
	s.setPhase(executor.Ready)
	s.told = make(chan struct{})
	e.device.Go(func() {
		defer close(s.told)
		e.opts.Events(executor.WorkerReady{Service: s.spec.ID, Info: s.info})
		select {
		case <-s.ended:
		case <-e.closing:
		}
		e.opts.Events(executor.WorkerStopped{Service: s.spec.ID})
	})
}

// Remove ends a service. It returns at once; the channel tells when nothing is
// left of it, as that of [executor.Executor.Remove] does. Its spans in flight
// are lost.
func (e *Executor) Remove(id models.ServiceID) (<-chan error, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.service(id)
	switch {
	case e.closed:
		return nil, executor.ErrClosed
	case s == nil:
		return nil, fmt.Errorf("%w: %d", executor.ErrUnknownService, id)
	case s.leaves:
		return nil, fmt.Errorf("%w: %s, already; wait for the first Remove", executor.ErrRemoved, s.spec.Name)
	}
	s.leaves = true
	if s.gone == nil {
		e.loseLocked(s)
		close(s.ended)
	}
	gone := make(chan error, 1)
	e.device.Go(func() {
		defer close(gone)
		gone <- e.dismantle(s)
	})
	return gone, nil
}

// loseLocked ends what a service runs, and lets it run no more. The other spans
// of its rounds go on as if it ran on.
func (e *Executor) loseLocked(s *service) {
	s.gone = executor.ErrRemoved
	s.setPhase(executor.Closed)
	clear(s.batches)
	now := time.Now()
	for _, r := range e.rounds {
		for i := range r.spans {
			if r.spans[i].service == s {
				r.lose(i, now)
			}
		}
	}
	if len(e.rounds) > 0 && !e.rounds[0].began.IsZero() {
		e.alarm.set(e.rounds[0].end().Sub(now) - pollTime)
	}
}

// lose ends a span whose service is removed.
func (r *round) lose(i int, now time.Time) {
	s, o := &r.spans[i], &r.outcome.Spans[i]
	if o.Err != nil {
		return
	}
	o.Status = models.SpanLost
	o.Err = &executor.LostError{Service: s.service.spec.Name, Cause: executor.ErrRemoved}
	s.batch = nil
	if !r.began.IsZero() {
		s.took = min(s.took, now.Sub(r.began))
	}
}

// dismantle returns when nothing is left of a service that runs nothing new.
func (e *Executor) dismantle(s *service) error {
	if s.told != nil {
		<-s.told
	}
	e.awaitUnused(s)
	err := s.close()
	e.mu.Lock()
	defer e.mu.Unlock()
	s.leaves = false
	// What an executor that closes did not get back, it says itself.
	if err == nil && !e.closed {
		e.changeLocked(func(list services) { delete(list, s.spec.ID) })
	}
	return err
}

// awaitUnused returns when nothing of a service is in use, or it has been waited
// for long enough.
func (e *Executor) awaitUnused(s *service) {
	ticker := time.NewTicker(releaseLook)
	defer ticker.Stop()
	for e.flies(s) {
		<-ticker.C
	}
	limit := time.NewTimer(e.opts.ReleaseGrace)
	defer limit.Stop()
	for s.arena.Used() > 0 || s.outputs.Outputs().Leases() > 0 {
		select {
		case <-ticker.C:
		case <-limit.C:
			return
		case <-e.closing:
			return
		}
	}
}

// flies reports whether a round with the service has not been delivered.
func (e *Executor) flies(s *service) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.flying > 0
}
