package overlap

import (
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Scheduler decides which spans run together. Events must be told in the
// order of their time; an earlier time is taken as the latest seen.
//
// Answers and Released fill up until they are drained, so the caller drains
// them after every event.
type Scheduler struct {
	policy     policy
	predict    prediction
	maxRetries int

	now      time.Duration
	draining bool
	services []*service
	triages  uint64       // that were made
	index    index        // every query that is not answered
	waiting  heap[*query] // those in a queue, by deadline
	paused   heap[*batch] // of all services, by deadline
	pool     pool
	lastID   models.BatchID

	busy     bool
	round    Round
	running  []*batch  // of each span of the round
	draft    *decision // the plan, or what the next decision is made in
	planned  bool      // draft is a plan
	last     *decision // the one behind the last round
	answers  drain[Answer]
	released drain[Release]
	metrics  Metrics

	explained Explanation // memory of Explain
}

// New returns an idle scheduler, or every fault of the configuration.
func New(config Config) (*Scheduler, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return newScheduler(config, policyNamed(config.Policy)), nil
}

func newScheduler(config Config, p policy) *Scheduler {
	s := &Scheduler{
		policy:     p,
		predict:    prediction{Predictor: config.Predictor},
		maxRetries: config.MaxRetries,
		now:        math.MinInt64,
		waiting: heap[*query]{
			before: func(a, b *query) bool { return a.Deadline < b.Deadline || a.Deadline == b.Deadline && a.ID < b.ID },
			moved:  func(q *query, pos int) { q.expiryPos = pos },
		},
		paused: heap[*batch]{
			before: func(a, b *batch) bool { return a.deadline < b.deadline || a.deadline == b.deadline && a.id < b.id },
			moved:  func(b *batch, pos int) { b.expiryPos = pos },
		},
	}
	s.draft, s.last = s.newDecision(config.Ways), s.newDecision(config.Ways)
	for _, m := range config.Services {
		s.services = append(s.services, newService(m))
	}
	return s
}

// Arrive queues a query. Unless it returns an error the query is accepted and
// gets one Answer.
func (s *Scheduler) Arrive(now time.Duration, m models.Query) error {
	s.clock(now)
	sv := s.service(m.Service)
	if sv == nil {
		return ErrUnknownService
	}
	if err := s.refusal(sv, &m); err != nil {
		sv.metrics.Refused[ReasonOf(err)]++
		return err
	}
	sv.metrics.Arrived++
	sv.lastSize, sv.lastSeqLen = m.Size, m.SeqLen
	s.overturn()
	q := s.pool.query()
	q.Query, q.rank.filler = m, sv.BestEffort
	s.index.put(q)
	s.enqueue(q)
	return nil
}

func (s *Scheduler) refusal(sv *service, m *models.Query) error {
	switch {
	case m.Size < 1 || m.SeqLen < 0 || m.Priority < 0:
		return ErrBadQuery
	case s.draining:
		return ErrDraining
	case m.Deadline <= s.now:
		return ErrExpired
	case s.index.get(m.ID) != nil:
		return ErrDuplicateQuery
	case sv.queue.len() >= sv.QueueLimit:
		return sv.full
	}
	return nil
}

// Next returns the next round to run, after which the device is busy until
// Finish. It is false while the device is busy and when there is nothing to
// run; Wake then says when to call it again though nothing happened. What Plan
// has decided is carried out if it still holds.
func (s *Scheduler) Next(now time.Duration) (Round, bool) {
	s.clock(now)
	s.expire()
	if s.busy {
		return Round{}, false
	}
	planned := s.keepPlan()
	if !planned {
		s.draft.decide(s.now)
	}
	return s.commit(planned)
}

// Wake returns when the earliest deadline of what waits passes, so that Next
// can answer it. It is false if nothing waits.
func (s *Scheduler) Wake() (at time.Duration, ok bool) {
	if s.waiting.len() > 0 {
		at, ok = s.waiting.top().Deadline, true
	}
	if s.paused.len() > 0 {
		if first := s.paused.top().deadline; !ok || first < at {
			at, ok = first, true
		}
	}
	return at, ok
}

// Answers returns the queries that have ended since the last call, in that
// order. The slice is valid until the next call.
func (s *Scheduler) Answers() []Answer { return s.answers.take() }

// Released returns the batches whose intermediates may be freed, in the order
// in which they were given up since the last call. The slice is valid until
// the next call. A batch that finished or was lost is not among them.
func (s *Scheduler) Released() []Release { return s.released.take() }

// Drain makes Arrive refuse every further query. What was accepted is served
// to its end, which Idle tells.
func (s *Scheduler) Drain(now time.Duration) {
	s.clock(now)
	s.draining = true
}

// Idle reports whether every accepted query is answered and nothing runs.
func (s *Scheduler) Idle() bool { return s.index.count == 0 && !s.busy }

func (s *Scheduler) clock(now time.Duration) { s.now = max(s.now, now) }

// expire drops what waits past its deadline. A plan has foreseen what is past
// by the time that it is for.
func (s *Scheduler) expire() {
	for s.waiting.len() > 0 && s.waiting.top().Deadline <= s.now {
		q := s.dequeue(s.waiting.top())
		s.expired(q.Deadline)
		s.answer(q, Dropped, ReasonDeadlinePassed)
	}
	for s.paused.len() > 0 && s.paused.top().deadline <= s.now {
		s.expired(s.paused.top().deadline)
		s.abandon(s.paused.top(), Dropped, ReasonDeadlinePassed)
	}
}

func (s *Scheduler) expired(deadline time.Duration) {
	if s.planned && deadline > s.draft.at {
		s.overturn()
	}
}

// enqueue puts a query without a batch into the queue of its service.
func (s *Scheduler) enqueue(q *query) {
	sv := s.services[q.Service]
	whole := q.span(sv.Operators)
	q.rank = s.rankOf(q, whole)
	if _, sorts := s.policy.(triager); sorts && sv.sorted() && !q.rank.filler {
		q.alone = s.predict.alone(whole).Latency
	}
	sv.queue.push(q)
	s.waiting.push(q)
}

func (s *Scheduler) dequeue(q *query) *query {
	s.services[q.Service].queue.remove(q.queuePos)
	return s.waiting.remove(q.expiryPos)
}

func (s *Scheduler) rankOf(q *query, left models.Span) rank {
	return rank{
		filler:  q.rank.filler,
		level:   level(q.Priority),
		retried: q.retries > 0,
		key:     s.policy.key(work{q.Arrival, q.Deadline, left, &s.predict}),
		arrival: q.Arrival,
		id:      q.ID,
	}
}

// answer ends a query that is in no queue. One that was tried again after its
// worker was lost owes its failure to that.
func (s *Scheduler) answer(q *query, result Result, reason Reason) {
	if result == Dropped && q.retries > 0 {
		result, reason = Failed, ReasonWorkerLost
	}
	a := Answer{
		Query: q.ID, Service: q.Service, Result: result, Reason: reason,
		Retries: q.retries, At: s.now, Queue: s.now - q.Arrival,
	}
	if b := q.batch; b != nil && b.id != 0 {
		a.Batch, a.BatchSize, a.Started, a.Run = b.id, b.size, b.started, b.run
		a.Queue = b.started - q.Arrival
	}
	s.services[q.Service].metrics.count(&a, q.Deadline)
	s.answers.add(a)
	s.index.remove(q.ID)
	s.pool.putQuery(q)
}

// drain is a list that is taken whole. Two buffers take turns, so that what
// was taken stays valid while the other fills.
type drain[T any] struct{ fill, taken []T }

func (d *drain[T]) add(item T) { d.fill = append(d.fill, item) }

func (d *drain[T]) take() []T {
	d.fill, d.taken = d.taken[:0], d.fill
	return d.taken
}
