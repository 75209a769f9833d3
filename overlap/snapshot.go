package overlap

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/reserve"
)

// Snapshot is everything that a Scheduler's later decisions depend on, apart
// from the rules of its Config, in a form that can be kept as JSON.
type Snapshot struct {
	Now            time.Duration
	Draining       bool
	LastBatch      models.BatchID
	deviceSnapshot                   // of the first device
	Further        []deviceSnapshot  `json:",omitempty"` // those of the others
	Services       []serviceSnapshot // by ID
	Waiting        []queryState      // those in a queue
	Batches        []batchSnapshot   // those that are paused, then those that run, then overruns, then those on their way
	Answers        []Answer          // not taken yet
	Released       []Held            // not taken yet
	Stops          []Held            `json:",omitempty"` // not taken yet
	Moves          []Move            `json:",omitempty"` // not taken yet
	Estimates      []reserve.Known   `json:",omitempty"`
	Metrics        Metrics
}

// deviceSnapshot is a device.
type deviceSnapshot struct {
	slotSnapshot
	Slots []slotSnapshot `json:",omitempty"` // the others, where it has several units
	Crowd crowd          `json:",omitzero"`
}

// slotSnapshot is a slot of a device.
type slotSnapshot struct {
	Busy    bool
	Round   Round            // the last one, which runs if Busy
	Running []models.BatchID // the batch of each span of the round
}

// serviceSnapshot is a service, which may have been added or changed since the
// Config was made. Its lists are in the order in which they are held.
type serviceSnapshot struct {
	Removed bool      `json:",omitempty"` // its ID is free: all else is zero
	ID      *struct{} `json:",omitempty"` // never: the position says it
	models.Service
	serviceState
	Queue           []models.QueryID
	Intent          reserve.Queue     `json:",omitzero"`
	Travel          float64           `json:",omitempty"` // see reserve.Queue
	replicaSnapshot                   // on the first device
	Replicas        []replicaSnapshot `json:",omitempty"` // on the others
}

// replicaSnapshot is a service on a device.
type replicaSnapshot struct {
	Down        bool
	Paused      []models.BatchID
	Exploration exploration `json:",omitzero"`
}

// batchSnapshot is a batch that has started.
type batchSnapshot struct {
	ID      models.BatchID
	Service models.ServiceID
	Device  int          `json:",omitempty"`
	Members []queryState // in gather order
	batchState
}

// Snapshot copies the state of the scheduler. It must not be called while
// another method runs, as from a Predictor. It changes nothing: this scheduler and one that is
// restored from the snapshot decide alike, and as if no snapshot had been taken. A plan is no
// part of it, so there must be none, see [Scheduler.Planned].
func (s *Scheduler) Snapshot() Snapshot {
	k := Snapshot{
		Now: s.backlog.now, Draining: s.backlog.draining, LastBatch: s.backlog.lastID,
		Answers: slices.Clone(s.backlog.answers.fill), Released: slices.Clone(s.backlog.released.fill), Stops: append([]Held(nil), s.backlog.stops.fill...), Moves: append([]Move(nil), s.backlog.moves.fill...),
		Metrics: s.Metrics(), Estimates: s.backlog.routes.tables.Estimates(),
	}
	for _, sv := range s.backlog.services {
		k.Services = append(k.Services, sv.snapshot())
	}
	k.Waiting = slices.Grow(k.Waiting, s.backlog.waiting.len())
	for _, q := range s.backlog.waiting.items {
		k.Waiting = append(k.Waiting, q.queryState)
	}
	for _, b := range s.backlog.paused.items {
		k.Batches = append(k.Batches, b.snapshot())
	}
	for i, v := range s.backlog.host.devices {
		kv := deviceSnapshot{Crowd: v.crowd}
		for i := range v.slots {
			o := &v.slots[i]
			ks := slotSnapshot{Busy: o.busy, Round: o.round.clone()}
			for _, b := range o.running {
				ks.Running = append(ks.Running, b.id)
				k.Batches = append(k.Batches, b.snapshot())
			}
			if i == 0 {
				kv.slotSnapshot = ks
			} else {
				kv.Slots = append(kv.Slots, ks)
			}
		}
		if i == 0 {
			k.deviceSnapshot = kv
		} else {
			k.Further = append(k.Further, kv)
		}
	}
	for _, b := range slices.Concat(s.backlog.host.overruns, s.backlog.onWay) {
		k.Batches = append(k.Batches, b.snapshot())
	}
	return k
}

// Definitions returns the services that the snapshot holds, by ID. One that was
// removed has its ID only.
func (k *Snapshot) Definitions() []models.Service {
	services := make([]models.Service, len(k.Services))
	for i := range services {
		services[i] = k.Services[i].Service
		services[i].ID = models.ServiceID(i)
	}
	return services
}

func (sv *service) snapshot() serviceSnapshot {
	if sv.removed {
		return serviceSnapshot{Removed: true}
	}
	k := serviceSnapshot{Service: sv.Service, serviceState: sv.serviceState, Travel: sv.line.Travel}
	k.Service.ID = 0
	for i := range sv.replicas {
		r := replicaSnapshot{Down: !sv.up.has(i), Exploration: sv.replicas[i].exploration.clone()}
		for _, b := range sv.replicas[i].paused.items {
			r.Paused = append(r.Paused, b.id)
		}
		if i == 0 {
			k.replicaSnapshot = r
		} else {
			k.Replicas = append(k.Replicas, r)
		}
	}
	if q := &sv.line; len(sv.Pipelines) > 0 {
		k.Intent = reserve.Queue{Stale: q.Stale, Until: q.Until, Queued: q.Queued, Lead: q.Lead}
	}
	k.Queue = slices.Grow(k.Queue, sv.queue.len())
	for _, q := range sv.queue.items {
		k.Queue = append(k.Queue, q.ID)
	}
	return k
}

func (b *batch) snapshot() batchSnapshot {
	k := batchSnapshot{ID: b.id, Service: b.service.ID, Device: b.device.index, batchState: b.batchState, Members: make([]queryState, 0, len(b.members))}
	k.Way = reserve.Way{Leg: b.Leg, Due: b.Due}
	k.Legs = append(k.Legs, b.Legs...)
	for _, q := range b.members {
		k.Members = append(k.Members, q.queryState)
	}
	return k
}

// Restore returns a scheduler that goes on from a snapshot as the one would
// that it was taken of. The configuration must be that of the other one, but for its
// services, which come from the snapshot. A snapshot that contradicts itself or the
// configuration is refused with ErrSnapshot. The predictor is not asked.
func Restore(config Config, k Snapshot) (*Scheduler, error) {
	if faults := config.ruleFaults(); len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	s := newScheduler(config, policyNamed(config.Policy))
	if err := s.restore(&k); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return s, nil
}

// restore gives an idle scheduler the state of a snapshot. What is put together
// wrongly is left to Check.
func (s *Scheduler) restore(k *Snapshot) error {
	if err := s.restoreServices(k); err != nil {
		return err
	}
	s.backlog.now, s.backlog.draining, s.backlog.lastID = k.Now, k.Draining, k.LastBatch
	s.backlog.answers.fill, s.backlog.released.fill, s.backlog.stops.fill = slices.Clone(k.Answers), slices.Clone(k.Released), slices.Clone(k.Stops)
	s.backlog.moves.fill = slices.Clone(k.Moves)
	for i := range k.Waiting {
		q, err := s.backlog.restoreQuery(&k.Waiting[i])
		if err != nil {
			return err
		}
		s.backlog.await(q)
	}
	batches := map[models.BatchID]*batch{}
	for i := range k.Batches {
		b, err := s.restoreBatch(&k.Batches[i])
		if err == nil && (b.id > s.backlog.lastID || batches[b.id] != nil) {
			err = errors.New("the ID cannot be")
		}
		if err != nil {
			return fmt.Errorf("batch %d: %w", k.Batches[i].ID, err)
		}
		batches[b.id] = b
	}
	var err error
	if s.rounds, err = s.backlog.host.restore(k, batches); err != nil {
		return err
	}
	for i := range k.Batches {
		b := batches[k.Batches[i].ID]
		s.backlog.routes.reserve(b)
		switch {
		case b.Overrun.End > 0:
			s.backlog.host.setApart(b, models.Span{End: b.Overrun.End, Share: b.Overrun.Share})
		case b.Transit != settled:
			s.backlog.routes.embark(b)
		case !b.running:
			s.backlog.host.hold(b.device, 1)
			s.backlog.paused.push(b)
		}
	}
	for i, sv := range s.backlog.services {
		for _, id := range k.Services[i].Queue {
			q := s.backlog.queries[id]
			if q == nil || q.Service != sv.ID {
				return fmt.Errorf("query %d is not of service %s", id, sv.Name)
			}
			sv.queue.push(q)
		}
		sv.line.Stale = true
		for d, r := range append([]replicaSnapshot{k.Services[i].replicaSnapshot}, k.Services[i].Replicas...) {
			for _, id := range r.Paused {
				b := batches[id]
				if b == nil || b.service != sv || b.device.index != d {
					return fmt.Errorf("batch %d is not of service %s on device %d", id, sv.Name, d)
				}
				sv.replicas[d].paused.push(b)
			}
		}
	}
	for i, sv := range s.backlog.services {
		if n, q := &k.Services[i].Intent, &sv.line; len(sv.Pipelines) > 0 {
			q.Stale, q.Until, q.Queued, q.Lead = n.Stale, n.Until, n.Queued, n.Lead
		}
	}
	return s.Check()
}

// restore gives the devices their rounds. It returns the number of the latest.
func (h *host) restore(k *Snapshot, batches map[models.BatchID]*batch) (latest uint64, err error) {
	if n := 1 + len(k.Further); n != len(h.devices) {
		return 0, fmt.Errorf("%d devices: the configuration has %d", n, len(h.devices))
	}
	for i, kv := range append([]deviceSnapshot{k.deviceSnapshot}, k.Further...) {
		v := h.devices[i]
		if n := 1 + len(kv.Slots); n != len(v.slots) {
			return 0, fmt.Errorf("device %d has %d units: the configuration has %d", i, n, len(v.slots))
		}
		v.crowd = kv.Crowd
		for n, ks := range append([]slotSnapshot{kv.slotSnapshot}, kv.Slots...) {
			o := &v.slots[n]
			o.busy, o.round = ks.Busy, ks.Round.clone()
			latest = max(latest, o.round.Number)
			for _, id := range ks.Running {
				b := batches[id]
				if b == nil || b.device != v || b.running {
					return 0, fmt.Errorf("batch %d runs and is not there", id)
				}
				b.running = true
				o.running = append(o.running, b)
			}
			if len(o.running) != len(o.round.Spans) && o.busy {
				return 0, fmt.Errorf("round %d has %d spans of %d batches", o.round.Number, len(o.round.Spans), len(o.running))
			}
			if o.busy && len(o.running) > 0 {
				h.take(v, v.width(o.round.Spans[0].Share))
			}
		}
	}
	return latest, nil
}

// restoreServices makes the services of a snapshot.
func (s *Scheduler) restoreServices(k *Snapshot) error {
	if n := len(k.Services); n > MaxServices {
		return fmt.Errorf("%d services: the limit is %d", n, MaxServices)
	}
	s.metrics = k.Metrics
	s.metrics.Services, s.backlog.services = nil, nil
	for i, m := range k.Definitions() {
		ks := &k.Services[i]
		if err := badService(&s.backlog, &m); err != nil && !ks.Removed {
			return err
		}
		if i >= len(k.Metrics.Services) {
			return fmt.Errorf("metrics of %d services", i)
		}
		if n := 1 + len(ks.Replicas); n != len(s.backlog.host.devices) && !ks.Removed {
			return fmt.Errorf("service %s: replicas on %d devices: the configuration has %d", m.Name, n, len(s.backlog.host.devices))
		}
		sv := newService(m, len(s.backlog.host.devices))
		sv.serviceState, sv.metrics, sv.removed = ks.serviceState, k.Metrics.Services[i], ks.Removed
		sv.line.SeqLen, sv.line.Travel = sv.Last.SeqLen, ks.Travel
		sv.metrics.Name, sv.metrics.Down, sv.metrics.Queued, sv.metrics.Paused = m.Name, false, 0, 0
		if sv.removed {
			sv.takeDown()
		} else {
			for d, r := range append([]replicaSnapshot{ks.replicaSnapshot}, ks.Replicas...) {
				sv.replicas[d].exploration = r.Exploration.clone()
				if r.Down {
					sv.up.clear(d)
				}
			}
		}
		s.backlog.services = append(s.backlog.services, sv)
	}
	s.backlog.families = regroup(s.backlog.services)
	s.backlog.routes.regard()
	s.backlog.routes.tables.Restore(k.Estimates)
	return nil
}

// restoreQuery restores a query that is in no batch and no queue yet.
func (l *backlog) restoreQuery(k *queryState) (*query, error) {
	switch {
	case l.service(k.Service) == nil:
		return nil, fmt.Errorf("query %d: %w", k.ID, ErrUnknownService)
	case badQuery(&k.Query) || k.Retries < 0:
		return nil, fmt.Errorf("query %d: %w", k.ID, ErrBadQuery)
	case l.queries[k.ID] != nil:
		return nil, fmt.Errorf("query %d: %w", k.ID, ErrDuplicateQuery)
	}
	q := l.pool.query()
	if q.queryState = *k; !q.Answered {
		l.queries[q.ID] = q
	}
	return q, nil
}

// restoreBatch restores a batch that neither runs nor is paused yet.
func (s *Scheduler) restoreBatch(k *batchSnapshot) (*batch, error) {
	sv := s.backlog.service(k.Service)
	if sv == nil {
		return nil, ErrUnknownService
	}
	if k.Device < 0 || k.Device >= len(s.backlog.host.devices) {
		return nil, fmt.Errorf("there is no device %d", k.Device)
	}
	b := s.backlog.pool.batch(sv)
	b.id, b.device, b.batchState = k.ID, s.backlog.host.devices[k.Device], k.batchState
	b.Legs = slices.Clone(k.Legs)
	if err := b.Way.Check(len(s.backlog.host.devices), sv.Operators, b.Transit != settled); err != nil {
		return nil, err
	}
	for i := range k.Members {
		q, err := s.backlog.restoreQuery(&k.Members[i])
		if err != nil {
			return nil, err
		}
		q.batch = b
		b.members = append(b.members, q)
	}
	if len(b.Legs) > 0 {
		b.Batch, b.Late = b.id, b.Explores || len(b.members) > 0 && b.members[0].Rank.Filler
	}
	return b, nil
}
