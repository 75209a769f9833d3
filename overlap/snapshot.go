package overlap

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Snapshot is everything that a Scheduler's later decisions depend on, apart
// from the rules of its Config, in a form that can be kept as JSON.
type Snapshot struct {
	Now       time.Duration
	Draining  bool
	LastBatch models.BatchID
	Busy      bool
	Round     roundSnapshot     // the last one, which runs if Busy
	Running   []models.BatchID  // the batch of each span of the round
	Services  []serviceSnapshot // by ID
	Waiting   []querySnapshot   // those in a queue
	Batches   []batchSnapshot   // those that are paused, then those that run
	Answers   []Answer          // not taken yet
	Released  []Release         // not taken yet
	Metrics   Metrics
}

// roundSnapshot is a round.
type roundSnapshot struct {
	Number    uint64
	Spans     []models.Span
	Start     time.Duration
	Predicted models.Estimate
	Planned   bool
	Queries   [][]models.QueryID // the members of the batch of each span
}

// serviceSnapshot is a service, which may have been added or changed since the
// Config was made. Its lists are in the order in which they are held.
type serviceSnapshot struct {
	Removed    bool `json:",omitempty"` // its ID is free: all else is zero
	Name       string
	Operators  int
	QoSTarget  time.Duration
	QueueLimit int
	MaxBatch   int
	BestEffort bool
	Down       bool
	LastEnd    time.Duration
	Caution    int
	Size       int // dimensions of the query that arrived last
	SeqLen     int
	Queue      []models.QueryID
	Paused     []models.BatchID
}

// querySnapshot is an accepted query.
type querySnapshot struct {
	Query     models.Query
	Rank      rank
	Alone     time.Duration // the time it was predicted to take alone, 0 where nobody asked
	Retries   int
	Cancelled bool
}

// batchSnapshot is a batch that has started.
type batchSnapshot struct {
	ID       models.BatchID
	Service  models.ServiceID
	Members  []querySnapshot // in gather order
	Next     int             // the operator to run next
	Size     int
	SeqLen   int
	Rank     rank
	Deadline time.Duration
	Started  time.Duration
	Run      time.Duration
}

// Snapshot copies the state of the scheduler. It must not be called while
// another method runs, as from a Predictor. A plan is no part of a snapshot:
// it is overturned, so that this scheduler and one restored go on alike.
func (s *Scheduler) Snapshot() Snapshot {
	s.overturn()
	k := Snapshot{
		Now: s.now, Draining: s.draining, LastBatch: s.lastID, Busy: s.busy,
		Round:   s.round.snapshot(),
		Answers: slices.Clone(s.answers.fill), Released: slices.Clone(s.released.fill),
		Metrics: s.Metrics(),
	}
	for _, sv := range s.services {
		k.Services = append(k.Services, sv.snapshot())
	}
	k.Waiting = slices.Grow(k.Waiting, s.waiting.len())
	for _, q := range s.waiting.items {
		k.Waiting = append(k.Waiting, q.snapshot())
	}
	for _, b := range s.paused.items {
		k.Batches = append(k.Batches, b.snapshot())
	}
	for _, b := range s.running {
		k.Running = append(k.Running, b.id)
		k.Batches = append(k.Batches, b.snapshot())
	}
	return k
}

// Definitions returns the services that the snapshot holds, by ID. One that was
// removed has its ID only.
func (k *Snapshot) Definitions() []models.Service {
	services := make([]models.Service, len(k.Services))
	for i := range k.Services {
		services[i] = k.Services[i].definition(i)
	}
	return services
}

func (k *serviceSnapshot) definition(position int) models.Service {
	return models.Service{
		ID: models.ServiceID(position), Name: k.Name, Operators: k.Operators, QoSTarget: k.QoSTarget,
		QueueLimit: k.QueueLimit, MaxBatch: k.MaxBatch, BestEffort: k.BestEffort,
	}
}

// empty reports whether there is nothing but whether it was removed.
func (k *serviceSnapshot) empty() bool {
	return k.definition(0) == models.Service{} && !k.Down && k.LastEnd == 0 && k.Caution == 0 &&
		k.Size == 0 && k.SeqLen == 0 && len(k.Queue)+len(k.Paused) == 0
}

func (r *Round) snapshot() roundSnapshot {
	k := roundSnapshot{Number: r.Number, Start: r.Start, Spans: slices.Clone(r.Group.Spans), Predicted: r.Predicted, Planned: r.Planned}
	for _, ids := range r.queries {
		k.Queries = append(k.Queries, slices.Clone(ids))
	}
	return k
}

func (sv *service) snapshot() serviceSnapshot {
	if sv.removed {
		return serviceSnapshot{Removed: true}
	}
	k := serviceSnapshot{
		Name: sv.Name, Operators: sv.Operators, QoSTarget: sv.QoSTarget, QueueLimit: sv.QueueLimit,
		MaxBatch: sv.MaxBatch, BestEffort: sv.BestEffort, Down: sv.down,
		LastEnd: sv.lastEnd, Caution: sv.caution, Size: sv.lastSize, SeqLen: sv.lastSeqLen,
	}
	k.Queue = slices.Grow(k.Queue, sv.queue.len())
	for _, q := range sv.queue.items {
		k.Queue = append(k.Queue, q.ID)
	}
	for _, b := range sv.paused.items {
		k.Paused = append(k.Paused, b.id)
	}
	return k
}

func (q *query) snapshot() querySnapshot {
	return querySnapshot{Query: q.Query, Rank: q.rank, Alone: q.alone, Retries: q.retries, Cancelled: q.cancelled}
}

func (b *batch) snapshot() batchSnapshot {
	k := batchSnapshot{
		ID: b.id, Service: b.service.ID, Next: b.next, Size: b.size, SeqLen: b.seqLen,
		Rank: b.rank, Deadline: b.deadline, Started: b.started, Run: b.run,
		Members: make([]querySnapshot, 0, len(b.members)),
	}
	for _, q := range b.members {
		k.Members = append(k.Members, q.snapshot())
	}
	return k
}

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
	if err := restore(s, &k); err != nil {
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

// restore gives an idle scheduler the state of a snapshot.
func restore(s *Scheduler, k *Snapshot) error {
	r := &restoring{s, map[models.QueryID]*query{}, map[models.BatchID]*batch{}}
	if err := r.define(k.Services); err != nil {
		return err
	}
	if len(k.Metrics.Services) != len(s.services) {
		return fmt.Errorf("metrics of %d services", len(k.Metrics.Services))
	}
	s.now, s.draining, s.lastID, s.busy = k.Now, k.Draining, k.LastBatch, k.Busy
	s.metrics.Rounds, s.metrics.Busy, s.metrics.Plans = k.Metrics.Rounds, k.Metrics.Busy, k.Metrics.Plans
	s.answers.fill, s.released.fill = slices.Clone(k.Answers), slices.Clone(k.Released)
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
func (r *restoring) define(ks []serviceSnapshot) error {
	s := r.s
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
func (r *restoring) query(k *querySnapshot) (*query, error) {
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
	q.Query, q.rank, q.alone, q.retries, q.cancelled = *m, k.Rank, k.Alone, k.Retries, k.Cancelled
	r.s.index.put(q)
	return q, nil
}

// batch restores a batch that neither runs nor is paused yet.
func (r *restoring) batch(k *batchSnapshot) error {
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
	b.id, b.next, b.seqLen, b.rank = k.ID, k.Next, k.SeqLen, k.Rank
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

func (r *restoring) service(sv *service, k *serviceSnapshot, m *ServiceMetrics) error {
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
