package overlap

import (
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
	Round     RoundSnapshot     // the last one, which runs if Busy
	Running   []models.BatchID  // of each span of the round
	Services  []ServiceSnapshot // by ID
	Waiting   []QuerySnapshot   // those in a queue
	Batches   []BatchSnapshot   // those that are paused, then those that run
	Answers   []Answer          // not taken yet
	Released  []Release         // not taken yet
	Metrics   Metrics
}

// RoundSnapshot is a round.
type RoundSnapshot struct {
	Number    uint64
	Spans     []models.Span
	Start     time.Duration
	Predicted models.Estimate
	Planned   bool
	Queries   [][]models.QueryID // of each span
}

// ServiceSnapshot is a service, which may have been added or changed since the
// Config was made. Its lists are in the order in which they are held.
type ServiceSnapshot struct {
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
	Size       int // of the query that arrived last
	SeqLen     int
	Queue      []models.QueryID
	Paused     []models.BatchID
}

// QuerySnapshot is an accepted query.
type QuerySnapshot struct {
	Query     models.Query
	Rank      RankSnapshot
	Alone     time.Duration // that it was predicted to take alone, 0 where nobody asked
	Retries   int
	Cancelled bool
}

// BatchSnapshot is a batch that has started.
type BatchSnapshot struct {
	ID       models.BatchID
	Service  models.ServiceID
	Members  []QuerySnapshot // in gather order
	Next     int             // the operator to run next
	Size     int
	SeqLen   int
	Rank     RankSnapshot
	Deadline time.Duration
	Started  time.Duration
	Run      time.Duration
}

// RankSnapshot is the place of a query or a batch in the order in which they
// run.
type RankSnapshot struct {
	Filler  bool
	Level   int
	Retried bool
	Key     time.Duration
	Arrival time.Duration
	ID      models.QueryID
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

func (k *ServiceSnapshot) definition(position int) models.Service {
	return models.Service{
		ID: models.ServiceID(position), Name: k.Name, Operators: k.Operators, QoSTarget: k.QoSTarget,
		QueueLimit: k.QueueLimit, MaxBatch: k.MaxBatch, BestEffort: k.BestEffort,
	}
}

// empty reports whether there is nothing but whether it was removed.
func (k *ServiceSnapshot) empty() bool {
	return k.definition(0) == models.Service{} && !k.Down && k.LastEnd == 0 && k.Caution == 0 &&
		k.Size == 0 && k.SeqLen == 0 && len(k.Queue)+len(k.Paused) == 0
}

func (r *Round) snapshot() RoundSnapshot {
	k := RoundSnapshot{Number: r.Number, Start: r.Start, Spans: slices.Clone(r.Group.Spans), Predicted: r.Predicted, Planned: r.Planned}
	for _, ids := range r.queries {
		k.Queries = append(k.Queries, slices.Clone(ids))
	}
	return k
}

func (sv *service) snapshot() ServiceSnapshot {
	if sv.removed {
		return ServiceSnapshot{Removed: true}
	}
	k := ServiceSnapshot{
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

func (q *query) snapshot() QuerySnapshot {
	return QuerySnapshot{Query: q.Query, Rank: q.rank.snapshot(), Alone: q.alone, Retries: q.retries, Cancelled: q.cancelled}
}

func (b *batch) snapshot() BatchSnapshot {
	k := BatchSnapshot{
		ID: b.id, Service: b.service.ID, Next: b.next, Size: b.size, SeqLen: b.seqLen,
		Rank: b.rank.snapshot(), Deadline: b.deadline, Started: b.started, Run: b.run,
		Members: make([]QuerySnapshot, 0, len(b.members)),
	}
	for _, q := range b.members {
		k.Members = append(k.Members, q.snapshot())
	}
	return k
}

func (r rank) snapshot() RankSnapshot {
	return RankSnapshot{r.filler, r.level, r.retried, r.key, r.arrival, r.id}
}

// Ended returns what Answers and Released would return, without taking it. The
// slices are valid until the next call of another method.
func (s *Scheduler) Ended() ([]Answer, []Release) { return s.answers.fill, s.released.fill }
