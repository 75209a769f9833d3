package overlap

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Restore returns a scheduler that goes on from a snapshot as the one would
// that it was taken of. The configuration must be that of the other one; its
// services come from the snapshot. Only a snapshot of earlier versions, which
// has no names of services, has them as they are in the configuration, but for
// Operators and MaxBatch. A snapshot that contradicts itself or the
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

// restoring is what a snapshot holds, by ID.
type restoring struct {
	s       *Scheduler
	waiting map[models.QueryID]*query
	batches map[models.BatchID]*batch
}

func (s *Scheduler) restore(k *Snapshot) error {
	if err := s.define(k.Services); err != nil {
		return err
	}
	if len(k.Metrics.Services) != len(s.services) {
		return fmt.Errorf("metrics of %d services", len(k.Metrics.Services))
	}
	s.now, s.draining, s.lastID, s.busy = k.Now, k.Draining, k.LastBatch, k.Busy
	s.metrics.Rounds, s.metrics.Busy, s.metrics.Plans = k.Metrics.Rounds, k.Metrics.Busy, k.Metrics.Plans
	s.answers.fill, s.released.fill = slices.Clone(k.Answers), slices.Clone(k.Released)
	r := &restoring{s, map[models.QueryID]*query{}, map[models.BatchID]*batch{}}
	for i := range k.Waiting {
		q, err := r.query(&k.Waiting[i])
		if err != nil {
			return err
		}
		r.waiting[q.ID] = q
		s.waiting.push(q)
	}
	for i := range k.Batches {
		if err := r.batch(&k.Batches[i]); err != nil {
			return fmt.Errorf("batch %d: %w", k.Batches[i].ID, err)
		}
	}
	if err := r.round(k); err != nil {
		return fmt.Errorf("round %d: %w", k.Round.Number, err)
	}
	for i := range k.Batches {
		if b := r.batches[k.Batches[i].ID]; !b.running {
			s.paused.push(b)
		}
	}
	for i, sv := range s.services {
		if err := r.service(sv, &k.Services[i], &k.Metrics.Services[i]); err != nil {
			return fmt.Errorf("service %s: %w", sv.Name, err)
		}
	}
	return r.held()
}

// define makes the services of a snapshot out of those of the configuration.
func (s *Scheduler) define(ks []ServiceSnapshot) error {
	if n := len(s.services); len(ks) < n || len(ks) > MaxServices {
		return fmt.Errorf("%d services: the configuration has %d, the limit is %d", len(ks), n, MaxServices)
	}
	for i := range ks {
		k := &ks[i]
		m := k.definition(i)
		switch {
		case k.Removed && !k.empty():
			return fmt.Errorf("service %d was removed and holds something", i)
		case k.Name == "" && !k.Removed && i < len(s.services):
			m = s.services[i].Service
			m.Operators, m.MaxBatch = k.Operators, k.MaxBatch
		}
		sv := newService(m)
		if sv.removed = k.Removed; !sv.removed {
			if err := badService(&m); err != nil {
				return err
			}
		}
		if i == len(s.services) {
			s.services = append(s.services, nil)
		}
		s.services[i] = sv
	}
	return nil
}

// query restores a query that is in no batch and no queue yet.
func (r *restoring) query(k *QuerySnapshot) (*query, error) {
	m := &k.Query
	switch {
	case r.s.service(m.Service) == nil:
		return nil, fmt.Errorf("query %d: %w", m.ID, ErrUnknownService)
	case m.Size < 1 || m.SeqLen < 0 || m.Priority < 0 || k.Retries < 0:
		return nil, fmt.Errorf("query %d: %w", m.ID, ErrBadQuery)
	case r.s.index.get(m.ID) != nil:
		return nil, fmt.Errorf("query %d: %w", m.ID, ErrDuplicateQuery)
	}
	q := r.s.pool.query()
	q.Query, q.rank, q.alone, q.retries, q.cancelled = *m, k.Rank.rank(), k.Alone, k.Retries, k.Cancelled
	r.s.index.put(q)
	return q, nil
}

// batch restores a batch that neither runs nor is paused yet.
func (r *restoring) batch(k *BatchSnapshot) error {
	sv := r.s.service(k.Service)
	if sv == nil {
		return ErrUnknownService
	}
	switch {
	case k.ID == 0 || k.ID > r.s.lastID || r.batches[k.ID] != nil:
		return fmt.Errorf("the ID cannot be")
	case len(k.Members) == 0:
		return fmt.Errorf("no members")
	case k.Next < 0 || k.Next >= sv.Operators:
		return fmt.Errorf("at operator %d of %d", k.Next, sv.Operators)
	}
	b := r.s.pool.batch(sv)
	b.id, b.next, b.seqLen, b.rank = k.ID, k.Next, k.SeqLen, k.Rank.rank()
	for i := range k.Members {
		if k.Members[i].Query.Service != k.Service {
			return fmt.Errorf("query %d is of service %d", k.Members[i].Query.ID, k.Members[i].Query.Service)
		}
		q, err := r.query(&k.Members[i])
		if err != nil {
			return err
		}
		b.add(q)
	}
	if b.size != k.Size {
		return fmt.Errorf("size %d, its members have %d", k.Size, b.size)
	}
	b.deadline, b.started, b.run = k.Deadline, k.Started, k.Run
	r.batches[b.id] = b
	return nil
}

// round restores the last round and lets its batches run.
func (r *restoring) round(k *Snapshot) error {
	s := r.s
	s.round.Number, s.round.Start = k.Round.Number, k.Round.Start
	s.round.Predicted, s.round.Planned = k.Round.Predicted, k.Round.Planned
	s.round.Group.Spans = slices.Clone(k.Round.Spans)
	for _, ids := range k.Round.Queries {
		s.round.queries = append(s.round.queries, slices.Clone(ids))
	}
	if len(k.Round.Queries) != len(k.Round.Spans) {
		return fmt.Errorf("%d spans with the queries of %d", len(k.Round.Spans), len(k.Round.Queries))
	}
	if !k.Busy {
		if len(k.Running) != 0 {
			return fmt.Errorf("%d batches run on an idle device", len(k.Running))
		}
		return nil
	}
	if len(k.Running) == 0 || len(k.Running) != len(k.Round.Spans) {
		return fmt.Errorf("%d batches run %d spans", len(k.Running), len(k.Round.Spans))
	}
	for i, id := range k.Running {
		b, span := r.batches[id], k.Round.Spans[i]
		if b == nil || b.running || span != b.span(span.End) || span.Len() < 1 || span.End > b.service.Operators {
			return fmt.Errorf("span %d is not of batch %d", i, id)
		}
		b.running = true
		s.running = append(s.running, b)
	}
	return nil
}

func (r *restoring) service(sv *service, k *ServiceSnapshot, m *ServiceMetrics) error {
	if sv.removed {
		if sv.down = true; *m != (ServiceMetrics{}) {
			return fmt.Errorf("it was removed and has metrics")
		}
		return nil
	}
	if k.Caution < 0 || k.Caution > maxCaution {
		return fmt.Errorf("caution %d", k.Caution)
	}
	sv.down, sv.lastEnd, sv.caution = k.Down, k.LastEnd, k.Caution
	sv.lastSize, sv.lastSeqLen = k.Size, k.SeqLen
	sv.metrics = *m
	sv.metrics.Name = sv.Name
	sv.metrics.Down, sv.metrics.Queued, sv.metrics.Paused = false, 0, 0
	for _, id := range k.Queue {
		q := r.waiting[id]
		if q == nil || q.queuePos >= 0 || q.Service != sv.ID {
			return fmt.Errorf("query %d is not in its queue", id)
		}
		sv.queue.push(q)
	}
	for _, id := range k.Paused {
		b := r.batches[id]
		if b == nil || b.running || b.pausedPos >= 0 || b.service != sv || !b.wanted() {
			return fmt.Errorf("batch %d is not paused", id)
		}
		sv.paused.push(b)
	}
	return nil
}

// held verifies that every query and every batch is where it belongs.
func (r *restoring) held() error {
	for id, q := range r.waiting {
		if q.queuePos < 0 {
			return fmt.Errorf("query %d is in no queue", id)
		}
	}
	for id, b := range r.batches {
		if b.pausedPos < 0 && !b.running {
			return fmt.Errorf("batch %d neither runs nor is paused", id)
		}
	}
	return nil
}

func (k RankSnapshot) rank() rank {
	return rank{k.Filler, k.Level, k.Retried, k.Key, k.Arrival, k.ID}
}
