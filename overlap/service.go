package overlap

import (
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/reserve"
)

// MaxPaused is how many batches of a service may be paused on a device. With that
// many, it forms no new batch until one has ended.
const MaxPaused = 16

// service is the scheduler's side of a deployed model. What each event reads comes first:
// among thousands of services the cache holds little of any.
type service struct {
	models.Service
	serviceState
	family   *family
	removed  bool // its ID is free, and it stays down
	queue    heap[*query]
	up       bitset    // devices on which it has a worker that is not lost
	busy     bitset    // devices on which an overrun, beside the rounds, keeps its worker busy
	replicas []replica // by device
	full     error
	metrics  ServiceMetrics
	view     view

	// line is the queue as the reservations of pipelines see it.
	line reserve.Queue
}

// replica is what a service has paused on one device.
type replica struct {
	paused      heap[*batch]
	walk        walk[*batch] // over paused
	exploration exploration  // on all devices of a kind, with the first of them
}

// serviceState is what a snapshot holds of a service, besides what it promises
// and its work.
type serviceState struct {
	Last    latest
	Relapse relapse `json:",omitzero"`
}

// latest is the query that arrived last.
type latest struct {
	Size, SeqLen int
	Alone        time.Duration `json:",omitempty"` // what it was predicted to take alone
}

func newService(m models.Service, devices int) *service {
	sv := &service{
		up:       newBitset(devices),
		busy:     newBitset(devices),
		replicas: make([]replica, devices),
		queue: heap[*query]{
			before: func(a, b *query) bool { return a.Rank.before(&b.Rank) },
			moved:  func(q *query, pos int) { q.queuePos = pos },
		},
		metrics: ServiceMetrics{Name: m.Name},
	}
	sv.define(m)
	sv.view.queue = newWalk(&sv.queue)
	for i := range sv.replicas {
		sv.up.set(i)
		r := &sv.replicas[i]
		r.paused.before = func(a, b *batch) bool { return a.Rank.before(&b.Rank) }
		r.paused.moved = func(b *batch, pos int) { b.pausedPos = pos }
		r.walk = newWalk(&r.paused)
	}
	return sv
}

// define sets what the service promises.
func (sv *service) define(m models.Service) {
	sv.Service, sv.full = m, fmt.Errorf("service %s: %w: %d queries wait", m.Name, ErrQueueFull, m.QueueLimit)
}

// exploration returns that of a service on devices like one. For what takes its way over
// several of them there is one.
func (sv *service) exploration(v *device) *exploration {
	if len(sv.Pipelines) > 0 {
		return &sv.replicas[0].exploration
	}
	return &sv.replicas[v.kind].exploration
}

// sorted reports whether queries of the service may be postponed in the decision that
// is made.
func (sv *service) sorted() bool { return sv.view.runnable && !sv.BestEffort }

// down reports whether the service has no worker at all.
func (sv *service) down() bool { return sv.up.next(0) < 0 }

// runnable reports whether its worker on a device can run a span.
func (sv *service) runnable(device int) bool { return sv.up.has(device) && !sv.busy.has(device) }

// runs reports the same, and without a device whether it has any such worker.
func (sv *service) runs(v *device) bool {
	if v == nil {
		return sv.places() > 0
	}
	return sv.runnable(v.index)
}

// places returns how many of its workers can run a span.
func (sv *service) places() int { return sv.up.without(sv.busy) }

// started returns how many of its batches are paused, and how many are overruns.
func (sv *service) started() (paused, overruns int) {
	for i := range sv.replicas {
		paused += sv.replicas[i].paused.len()
		if sv.busy.has(i) {
			overruns++
		}
	}
	return paused, overruns
}

// promises reports whether queries of the service that may arrive have a
// target that others must leave room for.
func (sv *service) promises() bool { return !sv.removed && !sv.BestEffort }

// asked reports whether a query has ever arrived for it, or for another variant of its service.
func (sv *service) asked() bool {
	return sv.Last.Size > 0 || slices.ContainsFunc(sv.family.members, func(of *service) bool { return of.Last.Size > 0 })
}

// typical returns the span of a whole query like the latest that arrived.
func (sv *service) typical() models.Span {
	return models.Span{Service: sv.ID, End: sv.Operators, Size: max(sv.Last.Size, 1), SeqLen: sv.Last.SeqLen}
}

// together returns how many of some queries, from the first on, are in a batch of them, and
// its size: all, or as many as have a size on the ladder. The first may be of any size.
func (sv *service) together(queries []*query) (n, size int) {
	sum := 0
	for i, q := range queries {
		if sum += q.Size; i == 0 || sv.allows(sum) {
			n, size = i+1, sum
		}
	}
	return n, size
}

// allows reports whether queries may be merged into a batch of a size.
func (sv *service) allows(size int) bool { return !sv.Ladder || models.OnLadder(size) }

func (sv *service) waiting(triage uint64) (w Waiting) {
	for i, q := range sv.queue.items {
		if i == 0 || q.Arrival < w.Oldest {
			w.Oldest = q.Arrival
		}
		if triage > 0 && q.postponed == triage {
			w.Postponed++
		}
	}
	_, overruns := sv.started()
	w.Overrun = overruns > 0
	return w
}

// add takes in a further service, which is down on all devices until Up. Its ID is the next
// one, or that of a service that was removed, of which nothing is left. It may
// have the name of a service whose place it is to take.
func (s *Scheduler) add(now time.Duration, m models.Service) error {
	s.backlog.clock(now)
	if err := badService(&s.backlog, &m); err != nil {
		return err
	}
	next := len(s.backlog.services)
	switch {
	case !slices.ContainsFunc(s.backlog.services, func(sv *service) bool { return sv.removed }) && next >= MaxServices:
		return fmt.Errorf("service %s: %w: %d are in use, remove one first", m.Name, ErrTooManyServices, next)
	case m.ID < 0 || int(m.ID) > next || s.backlog.service(m.ID) != nil || int(m.ID) == MaxServices:
		return fmt.Errorf("service %s: %w: %d, want %d or that of a service that was removed", m.Name, ErrServiceID, m.ID, next)
	case int(m.ID) == next:
		s.backlog.services = append(s.backlog.services, nil)
	}
	sv := newService(m, len(s.backlog.host.devices))
	sv.takeDown()
	s.backlog.services[m.ID] = sv
	s.backlog.families = regroup(s.backlog.services)
	s.backlog.routes.regard()
	s.overturn()
	return nil
}

// change gives a service another target, queue limit or largest batch, other pipelines,
// which batches follow that are formed from then on, or makes it best effort or not; ID, name and operators must be what they were.
// Queries that were accepted keep their deadlines and their ranks: of those
// that arrived before, best effort stays best effort.
func (s *Scheduler) change(now time.Duration, m models.Service) error {
	s.backlog.clock(now)
	sv := s.backlog.service(m.ID)
	if sv == nil {
		return ErrUnknownService
	}
	if err := badService(&s.backlog, &m); err != nil {
		return err
	}
	if m.Name != sv.Name || m.Operators != sv.Operators {
		return fmt.Errorf("service %s: %w: it has %d; add %s with %d operators as a service of its own",
			sv.Name, ErrOtherModel, sv.Operators, m.Name, m.Operators)
	}
	sv.define(m)
	s.backlog.families = regroup(s.backlog.services)
	s.backlog.routes.regard()
	s.overturn()
	sv.line.Stale = true
	return nil
}

// remove takes out a service of which nothing is left: every query it accepted
// is answered. Its ID is free then, and its metrics are gone. Take Answers and
// Released before, or they tell of a service that is not there.
func (s *Scheduler) remove(now time.Duration, id models.ServiceID) error {
	s.backlog.clock(now)
	sv := s.backlog.service(id)
	if sv == nil {
		return ErrUnknownService
	}
	started, overruns := sv.started()
	started += overruns + s.backlog.host.runs(sv) + s.backlog.under(sv)
	if n := sv.queue.len(); n > 0 || started > 0 {
		return fmt.Errorf("service %s: %w: %d queries wait, %d batches are paused or run; remove it when they have ended", sv.Name, ErrServiceBusy, n, started)
	}
	sv.line.Stale = true
	free := newService(models.Service{ID: id}, len(s.backlog.host.devices))
	free.removed = true
	free.takeDown()
	s.backlog.services[id] = free
	s.backlog.families = regroup(s.backlog.services)
	s.backlog.routes.regard()
	s.overturn()
	return nil
}

// replica returns the service on a device, nil if there is no such service or device.
func (sv *service) replica(device int) *replica {
	if sv == nil || device < 0 || device >= len(sv.replicas) {
		return nil
	}
	return &sv.replicas[device]
}

// takeDown leaves the service without a worker.
func (sv *service) takeDown() { clear(sv.up) }

// down takes a service out of scheduling on a device because its worker there is lost,
// or there is none. Its batches that are paused there are lost with it; its queries
// wait, without holding up other services, or run on other devices. A service that was
// removed stays as it is.
func (s *Scheduler) down(now time.Duration, id models.ServiceID, device int) {
	s.backlog.clock(now)
	r := s.backlog.service(id).replica(device)
	if r == nil {
		return
	}
	s.backlog.services[id].up.clear(device)
	s.overturn()
	s.backlog.services[id].line.Stale = true
	for r.paused.len() > 0 {
		b := r.paused.top()
		s.backlog.unpause(b)
		if b.Reserved {
			s.backlog.takeBack(b)
		} else {
			s.backlog.again(b, models.SpanLost)
		}
	}
	s.backlog.routes.strand(s.backlog.services[id], device)
}

// up lets a service be scheduled on a device, because its worker there is ready. A
// service that was removed stays down.
func (s *Scheduler) up(now time.Duration, id models.ServiceID, device int) {
	s.backlog.clock(now)
	if s.backlog.service(id).replica(device) != nil {
		s.backlog.services[id].up.set(device)
		s.overturn()
		s.backlog.services[id].line.Stale = true
	}
}

// load sets what a worker has learned of a service's model: the number of
// its operators, which batches may be formed, and its pipelines. The other fields
// of m must be what they were. The service must be down on all devices, and none of its
// batches may be running.
func (s *Scheduler) load(now time.Duration, m models.Service) error {
	s.backlog.clock(now)
	sv := s.backlog.service(m.ID)
	if sv == nil {
		return ErrUnknownService
	}
	if _, overruns := sv.started(); !sv.down() || s.backlog.host.runs(sv)+s.backlog.under(sv)+overruns > 0 {
		return fmt.Errorf("service %s: %w: take it down, and load when its batch that runs has ended", sv.Name, ErrServiceBusy)
	}
	if faults := serviceFaults(&m, int(m.ID), s.backlog.host.units()); len(faults) > 0 {
		return faults[0]
	}
	sv.Operators, sv.MaxBatch, sv.Ladder, sv.Pipelines = m.Operators, m.MaxBatch, m.Ladder, m.Pipelines
	sv.Relapse = relapse{} // another model has done nothing yet
	s.backlog.routes.regard()
	s.overturn()
	sv.line.Stale = true
	return nil
}
