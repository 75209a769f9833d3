package overlap

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Add takes in a further service, which is down until Up. Its ID is the next
// one, or that of a service that was removed, of which nothing is left. It may
// have the name of a service whose place it is to take.
func (s *Scheduler) Add(now time.Duration, m models.Service) error {
	s.clock(now)
	if err := badService(&m); err != nil {
		return err
	}
	next := len(s.services)
	switch {
	case !slices.ContainsFunc(s.services, func(sv *service) bool { return sv.removed }) && next >= MaxServices:
		return fmt.Errorf("service %s: %w: %d are in use, remove one first", m.Name, ErrTooManyServices, next)
	case m.ID < 0 || int(m.ID) > next || s.service(m.ID) != nil || int(m.ID) == MaxServices:
		return fmt.Errorf("service %s: %w: %d, want %d or that of a service that was removed", m.Name, ErrServiceID, m.ID, next)
	case int(m.ID) == next:
		s.services = append(s.services, nil)
	}
	sv := newService(m)
	sv.Down = true
	s.services[m.ID] = sv
	s.overturn()
	return nil
}

// Change gives a service another target, queue limit or largest batch, or
// makes it best effort or not; ID, name and operators must be what they were.
// Queries that were accepted keep their deadlines and their ranks: of those
// that arrived before, best effort stays best effort.
func (s *Scheduler) Change(now time.Duration, m models.Service) error {
	s.clock(now)
	sv := s.service(m.ID)
	if sv == nil {
		return ErrUnknownService
	}
	if err := badService(&m); err != nil {
		return err
	}
	if m.Name != sv.Name || m.Operators != sv.Operators {
		return fmt.Errorf("service %s: %w: it has %d; add %s with %d operators as a service of its own",
			sv.Name, ErrOtherModel, sv.Operators, m.Name, m.Operators)
	}
	sv.define(m)
	s.overturn()
	return nil
}

// Remove takes out a service of which nothing is left: every query it accepted
// is answered. Its ID is free then, and its metrics are gone. Take Answers and
// Released before, or they tell of a service that is not there.
func (s *Scheduler) Remove(now time.Duration, id models.ServiceID) error {
	s.clock(now)
	sv := s.service(id)
	if sv == nil {
		return ErrUnknownService
	}
	started := sv.paused.len()
	if s.runs(sv) {
		started++
	}
	if n := sv.queue.len(); n > 0 || started > 0 {
		return fmt.Errorf("service %s: %w: %d queries wait, %d batches are paused or run; remove it when they have ended", sv.Name, ErrServiceBusy, n, started)
	}
	free := newService(models.Service{ID: id})
	free.removed, free.Down = true, true
	s.services[id] = free
	s.overturn()
	return nil
}

// Down takes a service out of scheduling because its worker is lost. Its paused batches are
// lost with it; its queries wait, without holding up other services. A service
// that was removed stays as it is.
func (s *Scheduler) Down(now time.Duration, id models.ServiceID) {
	s.clock(now)
	sv := s.service(id)
	if sv == nil {
		return
	}
	sv.Down = true
	s.overturn()
	for sv.paused.len() > 0 {
		b := sv.paused.top()
		s.unpause(b)
		s.lose(b)
	}
}

// Up lets a service be scheduled again because its worker is ready. A service that
// was removed stays down.
func (s *Scheduler) Up(now time.Duration, id models.ServiceID) {
	s.clock(now)
	if sv := s.service(id); sv != nil {
		sv.Down = false
		s.overturn()
	}
}

// Load sets what a worker has learned of a service's model: the number of
// its operators, and the largest batch that may be formed. The other fields of
// m must be what they were. The service must be down, and none of its batches
// may be running.
func (s *Scheduler) Load(now time.Duration, m models.Service) error {
	s.clock(now)
	sv := s.service(m.ID)
	if sv == nil {
		return ErrUnknownService
	}
	if !sv.Down || s.runs(sv) {
		return fmt.Errorf("service %s: %w: take it down, and load when its batch that runs has ended", sv.Name, ErrServiceBusy)
	}
	if faults := serviceFaults(&m, int(m.ID)); len(faults) > 0 {
		return faults[0]
	}
	sv.Operators, sv.MaxBatch = m.Operators, m.MaxBatch
	s.overturn()
	return nil
}

// badService reports every fault of a definition.
func badService(m *models.Service) error {
	if faults := serviceFaults(m, int(m.ID)); len(faults) > 0 {
		return fmt.Errorf("%w: %w", ErrBadService, errors.Join(faults...))
	}
	return nil
}
