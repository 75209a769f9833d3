package baselines

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// scheduler matches batches with devices by a policy of this package. It has the methods
// of an [overlap.Scheduler] that a simulation calls.
type scheduler struct {
	policy     policy
	maxRetries int
	now        time.Duration
	services   []*service // by ID
	devices    []*device
	queries    map[models.QueryID]*query // those without an answer
	rounds     uint64
	lastBatch  models.BatchID
	started    []overlap.ServiceMetrics

	// What has happened since the last call of Ready, and what that call returned.
	answers, given  []overlap.Answer
	stops, stopping []overlap.Held
}

// service is a deployed model: where its worker is up, its queue, the most urgent query
// first, and the batch that it would start next.
type service struct {
	models.Service
	up          []bool
	queue       []*query
	offer       offer
	exploration exploration
}

// first returns the first device that the service is up on, -1 if there is none.
func (sv *service) first() int { return slices.Index(sv.up, true) }

// on returns the device whose estimates count for work that no device has yet: the first that
// the service is up on, or the first of all.
func (sv *service) on(devices []*device) *device { return devices[max(sv.first(), 0)] }

// query is an accepted query. Its batch is nil while it is queued. One that runs alone was
// in a batch that failed.
type query struct {
	models.Query
	level     int
	retries   int
	alone     bool
	cancelled bool
	batch     *batch
}

// before orders the queries of a service, and paused batches by their most urgent queries.
func (q *query) before(o *query) bool {
	return cmp.Or(cmp.Compare(q.level, o.level), cmp.Compare(q.Deadline, o.Deadline), cmp.Compare(q.Arrival, o.Arrival), cmp.Compare(q.ID, o.ID)) < 0
}

// batchesWith reports whether two queries of a service may be in one batch.
func (q *query) batchesWith(head *query) bool {
	return q.Shape == head.Shape && q.SeqLen == head.SeqLen && !q.alone && !head.alone
}

// batch is one or more queries that run as one tensor. Of those that are not cancelled,
// head is the most urgent, and deadline the latest.
type batch struct {
	id       models.BatchID
	service  *service
	device   *device
	members  []*query
	size     int
	next     int // operator
	started  time.Duration
	run      time.Duration
	explores bool
	head     *query
	deadline time.Duration
}

func (b *batch) held() overlap.Held {
	return overlap.Held{Service: b.service.ID, Batch: b.id, Device: b.device.index}
}

// rest returns the remaining operators.
func (b *batch) rest() models.Span {
	return models.Span{Service: b.service.ID, Batch: b.id, Start: b.next, End: b.service.Operators, Size: b.size, SeqLen: b.members[0].SeqLen}
}

// wanted reports whether any member is not cancelled.
func (b *batch) wanted() bool {
	return slices.ContainsFunc(b.members, func(q *query) bool { return !q.cancelled })
}

// rank sets head and deadline.
func (b *batch) rank() {
	b.head, b.deadline = nil, math.MinInt64
	for _, q := range b.members {
		if q.cancelled {
			continue
		}
		if b.deadline = max(b.deadline, q.Deadline); b.head == nil || q.before(b.head) {
			b.head = q
		}
	}
}

// device runs one batch at a time. A batch that is stopped for a larger one is paused
// there, or restarts.
type device struct {
	index    int
	running  *batch // nil while the device is free
	stopping bool
	restarts bool
	round    overlap.Round
	paused   []*batch

	// The predictor and its arguments, here so that asking does not allocate.
	predictor overlap.Predictor
	span      [1]models.Span
	group     [1]models.Group
	estimates [1]models.Estimate
}

// predict estimates how long a span takes alone, zero if that is unknown.
func (v *device) predict(span models.Span) models.Estimate {
	v.span[0], v.estimates[0] = span, models.Estimate{}
	v.predictor.Predict(v.group[:], v.estimates[:])
	e := v.estimates[0]
	if e.Latency <= 0 {
		return models.Estimate{}
	}
	return models.Estimate{Latency: e.Latency, Bound: max(e.Bound, e.Latency)}
}

// start runs the remaining operators of a batch.
func (v *device) start(b *batch, round uint64, now time.Duration) *overlap.Round {
	v.running, v.stopping, v.restarts = b, false, false
	r := &v.round
	r.Number, r.Start, r.Predicted = round, now, v.predict(b.rest())
	r.Spans = append(r.Spans[:0], b.rest())
	ids := make([]models.QueryID, 0, len(b.members))
	for _, q := range b.members {
		ids = append(ids, q.ID)
	}
	r.Queries = append(r.Queries[:0], ids)
	return r
}

func (v *device) unpause(b *batch) {
	at := slices.Index(v.paused, b)
	v.paused = slices.Delete(v.paused, at, at+1)
}

// New returns the scheduler of a policy of this package, and for any other policy that of
// package overlap. It is for [sim.Scenario].
func New(c overlap.Config) (sim.Scheduler, error) {
	p := policyNamed(c.Policy)
	if p == nil {
		return overlap.New(c)
	}
	return newScheduler(c, p)
}

func newScheduler(c overlap.Config, p policy) (*scheduler, error) {
	if err := validate(c); err != nil {
		return nil, err
	}
	s := &scheduler{policy: p, maxRetries: c.MaxRetries, now: math.MinInt64, queries: map[models.QueryID]*query{}}
	for i, predictor := range c.Devices {
		v := &device{index: i, predictor: predictor}
		v.group[0].Spans, v.round.Device = v.span[:], i
		s.devices = append(s.devices, v)
	}
	for _, m := range c.Services {
		sv := &service{Service: m, up: slices.Repeat([]bool{true}, len(s.devices))}
		sv.offer = offer{service: sv, alarm: overlap.Never}
		s.services = append(s.services, sv)
		s.started = append(s.started, overlap.ServiceMetrics{Name: m.Name})
	}
	return s, nil
}

// validate reports every fault of a configuration but its policy, which is of this package.
func validate(c overlap.Config) error {
	name := c.Policy
	c.Policy = "edf"
	faults := []error{c.Validate()}
	for i := range c.Services {
		sv := &c.Services[i]
		if len(sv.Pipelines) > 0 {
			faults = append(faults, fmt.Errorf("service %d (%s): pipelines: the policy %s matches batches with single devices, choose overlap, edf or reactive", i, sv.Name, name))
		}
		if sv.Of != "" {
			faults = append(faults, fmt.Errorf("service %d (%s): a variant of %s: the policy %s has no variants, choose one of package overlap", i, sv.Name, sv.Of, name))
		}
	}
	return errors.Join(faults...)
}

// Step records an event. It knows the events of a simulation without variants, pipelines and
// overruns.
func (s *scheduler) Step(now time.Duration, e *overlap.Event) error {
	s.now = max(s.now, now)
	switch e.Kind {
	case overlap.Arrive:
		return s.arrive(e.Query)
	case overlap.Cancel:
		s.cancel(e.Query.ID)
	case overlap.Finish:
		return s.finish(&e.Outcome)
	case overlap.Down:
		s.down(s.services[e.Service], s.devices[e.Device])
	case overlap.Up:
		sv := s.services[e.Service]
		sv.up[e.Device] = true
		sv.offer.invalidate()
	default:
		return overlap.ErrUnknownEvent
	}
	return nil
}

// Ready returns the answers since the last call, and if there are none, the next round.
func (s *scheduler) Ready(now time.Duration) (r overlap.Ready) {
	s.now = max(s.now, now)
	ended := len(s.answers)+len(s.stops) > 0
	if !ended {
		r.Round = s.next()
	}
	s.answers, s.given = s.given[:0], s.answers
	s.stops, s.stopping = s.stopping[:0], s.stops
	r.Answers, r.Stops, r.Wake = s.given, s.stopping, s.now
	if r.Round == nil && !ended {
		r.Wake = s.wake()
	}
	return r
}

// Ended reports whether something has ended that Ready has not returned yet.
func (s *scheduler) Ended() bool { return len(s.answers)+len(s.stops) > 0 }

// Advance does nothing: no round is chosen ahead.
func (s *scheduler) Advance(time.Duration) {}

// Metrics returns how many batches have started, and how many queries in batches with
// others. It counts nothing else.
func (s *scheduler) Metrics() overlap.Metrics {
	return overlap.Metrics{Rounds: s.rounds, Services: slices.Clone(s.started)}
}

// wake returns when Ready is to be called again though nothing happens.
func (s *scheduler) wake() time.Duration {
	at := overlap.Never
	for _, sv := range s.services {
		if o := &sv.offer; o.stale {
			return s.now
		} else if at = min(at, o.alarm); len(sv.queue) > 0 {
			at = min(at, sv.queue[0].Deadline)
		}
	}
	for _, v := range s.devices {
		for _, b := range v.paused {
			at = min(at, b.deadline)
		}
	}
	return at
}

// arrive queues a query, or returns why it is refused.
func (s *scheduler) arrive(m models.Query) error {
	if m.Service < 0 || int(m.Service) >= len(s.services) {
		return overlap.ErrUnknownService
	}
	sv := s.services[m.Service]
	switch {
	case m.Size < 1 || m.SeqLen < 0 || m.Priority < 0:
		return overlap.ErrBadQuery
	case m.Deadline <= s.now:
		return overlap.ErrExpired
	case s.queries[m.ID] != nil:
		return overlap.ErrDuplicateQuery
	case len(sv.queue) >= sv.QueueLimit:
		return fmt.Errorf("service %s: %w: %d queries wait", sv.Name, overlap.ErrQueueFull, sv.QueueLimit)
	}
	q := &query{Query: m, level: m.Priority}
	if m.Priority == 0 {
		q.level = math.MaxInt // after all numbered ones
	}
	s.queries[m.ID] = q
	s.enqueue(q)
	return nil
}

// enqueue queues a query and updates the offer of its service.
func (s *scheduler) enqueue(q *query) {
	sv := s.services[q.Service]
	at := len(sv.queue)
	for at > 0 && q.before(sv.queue[at-1]) {
		at--
	}
	sv.queue = slices.Insert(sv.queue, at, q)
	o := &sv.offer
	switch n := len(o.members); {
	case o.stale:
	case n == 0 || q.before(o.members[n-1]):
		o.invalidate()
	case n == len(sv.queue)-1 && s.add(o, q): // all queued queries are in the offer, and q fits
		s.schedule(o)
	}
}

// dequeue takes a query out of the queue of its service.
func (s *scheduler) dequeue(q *query) *query {
	sv := s.services[q.Service]
	if at := slices.Index(sv.queue, q); at == 0 {
		sv.queue[0], sv.queue = nil, sv.queue[1:] // without moving the others
	} else {
		sv.queue = slices.Delete(sv.queue, at, at+1)
	}
	sv.offer.invalidate()
	return q
}

// cancel ends a query whose client has left, once its batch is over or nobody wants that.
func (s *scheduler) cancel(id models.QueryID) {
	q := s.queries[id]
	if q == nil || q.cancelled {
		return
	}
	b := q.batch
	if b == nil {
		s.answer(s.dequeue(q), overlap.Cancelled, overlap.ReasonCancelled)
		return
	}
	q.cancelled = true
	switch runs := b.device.running == b; {
	case b.wanted():
		b.rank()
	case runs:
		s.stops = append(s.stops, b.held())
	default:
		b.device.unpause(b)
		s.end(b, overlap.Cancelled, overlap.ReasonCancelled)
	}
}

// down loses the worker of a service on a device, with its paused batches.
func (s *scheduler) down(sv *service, v *device) {
	sv.up[v.index] = false
	sv.offer.invalidate()
	for _, b := range slices.Clone(v.paused) {
		if b.service == sv {
			b.device.unpause(b)
			s.lost(b)
		}
	}
}

// expire drops what has waited past its deadline.
func (s *scheduler) expire() {
	for _, sv := range s.services {
		for len(sv.queue) > 0 && sv.queue[0].Deadline <= s.now {
			s.answer(s.dequeue(sv.queue[0]), overlap.Dropped, overlap.ReasonDeadlinePassed)
		}
	}
	for _, v := range s.devices {
		for _, b := range slices.Clone(v.paused) {
			if b.deadline <= s.now {
				b.device.unpause(b)
				s.end(b, overlap.Dropped, overlap.ReasonDeadlinePassed)
			}
		}
	}
}

// next starts the next batch and returns its round, nil if no free device can run any.
func (s *scheduler) next() *overlap.Round {
	s.expire()
	s.refresh()
	if !slices.ContainsFunc(s.devices, func(v *device) bool { return v.running == nil }) {
		s.preempt()
		return nil
	}
	waits := s.best(-1) != nil
	for _, v := range s.devices {
		if v.running != nil || !waits && len(v.paused) == 0 {
			continue
		}
		o, b := s.best(v.index), s.pausedOn(v)
		switch {
		case b != nil && (o == nil || s.policy.resumes(b, o)):
			v.unpause(b)
		case o != nil:
			b = s.form(o, v)
		default:
			continue
		}
		s.rounds++
		return v.start(b, s.rounds, s.now)
	}
	return nil
}

// form makes a batch of an offer, for a device.
func (s *scheduler) form(o *offer, v *device) *batch {
	n, size := o.take()
	s.lastBatch++
	b := &batch{id: s.lastBatch, service: o.service, device: v, members: slices.Clone(o.members[:n]), size: size, started: s.now}
	b.explores = n == 1 && s.now+s.estimate(o, size).Latency > b.members[0].Deadline
	for _, q := range b.members {
		s.dequeue(q).batch = b
	}
	b.rank()
	m := &s.started[b.service.ID]
	if m.Batches++; n > 1 {
		m.Merged += uint64(n)
	}
	return b
}

// pausedOn returns the most urgent batch that is paused on a device and can be in time,
// nil if there is none. Of each service, it drops the batches before that.
func (s *scheduler) pausedOn(v *device) (first *batch) {
	if len(v.paused) == 0 {
		return nil
	}
	slices.SortFunc(v.paused, func(a, b *batch) int {
		if a.head.before(b.head) {
			return -1
		}
		return 1
	})
	var seen []*service
	for _, b := range slices.Clone(v.paused) {
		if slices.Contains(seen, b.service) {
			continue
		}
		if !b.service.BestEffort && s.now+v.predict(b.rest()).Latency > b.deadline {
			b.device.unpause(b)
			s.end(b, overlap.Dropped, overlap.ReasonCannotFinish)
			continue
		}
		seen = append(seen, b.service)
		if first == nil || first.service.BestEffort && !b.service.BestEffort {
			first = b
		}
	}
	return first
}

// finish records the outcome of a device's round.
func (s *scheduler) finish(o *models.Outcome) error {
	if o.Device < 0 || o.Device >= len(s.devices) {
		return overlap.ErrUnknownRound
	}
	v := s.devices[o.Device]
	b := v.running
	if b == nil || o.Round != v.round.Number {
		return overlap.ErrUnknownRound
	}
	if len(o.Spans) != 1 || o.Spans[0].Span.Batch != b.id {
		return overlap.ErrBadOutcome
	}
	v.running = nil
	so := &o.Spans[0]
	b.run += max(so.Took, 0)
	switch {
	case so.Status == models.SpanFailed && len(b.members) == 1:
		s.end(b, overlap.Failed, overlap.ReasonModelFailed)
	case so.Status == models.SpanFailed:
		s.requeue(b, func(q *query) bool {
			q.alone = true // one of them is at fault
			return true
		})
	case so.Status == models.SpanLost:
		s.lost(b)
	case so.Reached == b.service.Operators:
		b.service.exploration.ended(s.now, b, true)
		s.end(b, overlap.Finished, overlap.ReasonNone)
	case !b.wanted():
		s.end(b, overlap.Cancelled, overlap.ReasonCancelled)
	case !b.service.up[v.index]:
		s.lost(b)
	case so.Reached == 0 || v.restarts:
		b.explores = false // it has shown nothing
		s.requeue(b, func(*query) bool { return true })
	default:
		b.next = so.Reached
		b.rank()
		v.paused = append(v.paused, b)
	}
	return nil
}

// lost queues the queries of a batch again whose worker was lost, as long as they can
// finish and have retries left.
func (s *scheduler) lost(b *batch) {
	s.requeue(b, func(q *query) bool {
		alone := models.Span{Service: q.Service, End: b.service.Operators, Size: q.Size, SeqLen: q.SeqLen}
		possible := q.Deadline > s.now && (b.service.BestEffort || s.now+b.service.on(s.devices).predict(alone).Latency <= q.Deadline)
		if q.retries >= s.maxRetries || !possible {
			s.answer(q, overlap.Failed, overlap.ReasonWorkerLost)
			return false
		}
		q.retries++
		return true
	})
}

// requeue dissolves a batch and queues the members again that are kept.
func (s *scheduler) requeue(b *batch, keep func(q *query) bool) {
	if b.explores {
		b.service.exploration.ended(s.now, b, false)
	}
	for _, q := range b.members {
		if q.cancelled {
			s.answer(q, overlap.Cancelled, overlap.ReasonCancelled)
		} else if keep(q) {
			q.batch = nil
			s.enqueue(q)
		}
	}
}

// end answers every member of a batch.
func (s *scheduler) end(b *batch, result overlap.Result, reason overlap.Reason) {
	s.requeue(b, func(q *query) bool {
		s.answer(q, result, reason)
		return false
	})
}

// answer ends a query that is in no queue.
func (s *scheduler) answer(q *query, result overlap.Result, reason overlap.Reason) {
	if result == overlap.Dropped && q.retries > 0 {
		result, reason = overlap.Failed, overlap.ReasonWorkerLost
	}
	if reason == overlap.ReasonCannotFinish {
		s.services[q.Service].exploration.remember(s.now, q)
	}
	a := overlap.Answer{
		Query: q.ID, Service: q.Service, Result: result, Reason: reason,
		Retries: q.retries, At: s.now, Queue: s.now - q.Arrival,
	}
	if b := q.batch; b != nil {
		a.Batch, a.BatchSize, a.Device, a.Started, a.Run, a.Queue = b.id, b.size, b.device.index, b.started, b.run, b.started-q.Arrival
	}
	s.answers = append(s.answers, a)
	delete(s.queries, q.ID)
}
