package overlap

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Down tells that the worker of a service is lost. Its paused batches are
// lost with it; its queries wait, without holding up other services. A service
// that was removed stays as it is.
func (s *Scheduler) Down(now time.Duration, id models.ServiceID) {
	s.clock(now)
	sv := s.service(id)
	if sv == nil {
		return
	}
	sv.down = true
	s.overturn()
	for sv.paused.len() > 0 {
		b := sv.paused.top()
		s.unpause(b)
		s.lose(b)
	}
}

// Up tells that the worker of a service is ready again. A
// service that was removed stays down.
func (s *Scheduler) Up(now time.Duration, id models.ServiceID) {
	s.clock(now)
	if sv := s.service(id); sv != nil {
		sv.down = false
		s.overturn()
	}
}

// Load tells what a worker has learned of a service's model: the number of
// its operators, and the largest batch that may be formed. The other fields of
// m must be what they were. The service must be down, and none of its batches
// may be running.
func (s *Scheduler) Load(now time.Duration, m models.Service) error {
	s.clock(now)
	sv := s.service(m.ID)
	if sv == nil {
		return ErrUnknownService
	}
	if !sv.down || s.runs(sv) {
		return fmt.Errorf("service %s: %w: take it down, and load when its batch that runs has ended", sv.Name, ErrServiceBusy)
	}
	if faults := serviceFaults(&m, int(m.ID)); len(faults) > 0 {
		return faults[0]
	}
	sv.Operators, sv.MaxBatch = m.Operators, m.MaxBatch
	s.overturn()
	return nil
}

// Members returns the queries of a batch that is running, in the order in
// which they were gathered, and nil for any other batch. The slice is valid
// until the next call of Next.
func (s *Scheduler) Members(id models.BatchID) []models.QueryID {
	for i, b := range s.running {
		if b != nil && b.id == id {
			return s.round.queries[i]
		}
	}
	return nil
}
