package overlap

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// backlog is everything that was accepted and is not answered: queries that
// wait in the queue of their service, and batches that are paused or run. It
// gives every query its one Answer.
type backlog struct {
	host       host
	policy     policy
	maxRetries int
	roundTime  time.Duration

	now      time.Duration // the latest time seen
	draining bool          // no query is accepted
	services []*service    // by ID
	lastID   models.BatchID
	queries  map[models.QueryID]*query // those that are not answered
	waiting  heap[*query]              // queries in a queue, by deadline
	ranked   int                       // of those, how many have a priority
	paused   heap[*batch]              // batches of all services, by deadline
	pool     pool
	families families
	selector Selector
	answers  drain[Answer]
	released drain[Held]
	stops    drain[Held]
	moves    drain[Move]
	transits
	routes routes
}

func newBacklog(config Config, p policy) backlog {
	l := backlog{
		policy:     p,
		maxRetries: config.MaxRetries,
		roundTime:  config.RoundTime,
		selector:   config.Selector,
		now:        math.MinInt64,
		queries:    map[models.QueryID]*query{},
		host:       newHost(&config),
		waiting: heap[*query]{
			before: func(a, b *query) bool { return a.Deadline < b.Deadline || a.Deadline == b.Deadline && a.ID < b.ID },
			moved:  func(q *query, pos int) { q.expiryPos = pos },
		},
		paused: heap[*batch]{
			before: func(a, b *batch) bool { return a.Deadline < b.Deadline || a.Deadline == b.Deadline && a.id < b.id },
			moved:  func(b *batch, pos int) { b.expiryPos = pos },
		},
	}
	for _, m := range config.Services {
		l.services = append(l.services, newService(m, len(l.host.devices)))
	}
	l.families = regroup(l.services)
	return l
}

func (l *backlog) clock(now time.Duration) {
	l.now = max(l.now, now)
	for _, v := range l.host.devices {
		if v.units > 1 {
			v.crowd.pass(l.now, v.rounds()+l.waiting.len()+v.paused)
		}
	}
}

// service returns the service with an ID, nil if there is none or it was
// removed.
func (l *backlog) service(id models.ServiceID) *service {
	if id < 0 || int(id) >= len(l.services) || l.services[id].removed {
		return nil
	}
	return l.services[id]
}

// wake returns when next is to be called though nothing happens: the earliest deadline
// passes of what waits or is in an overrun, a batch is to be formed, or to be moved. It is
// false if there is nothing.
func (l *backlog) wake() (at time.Duration, ok bool) {
	if l.waiting.len() > 0 {
		at, ok = l.waiting.top().Deadline, true
	}
	if l.paused.len() > 0 {
		if first := l.paused.top().Deadline; !ok || first < at {
			at, ok = first, true
		}
	}
	if first, some := l.routes.alarm(); some && (!ok || first < at) {
		at, ok = first, true
	}
	if first, some := l.overdue(); some && (!ok || first < at) {
		at, ok = first, true
	}
	return at, ok
}

// refusal returns why a query is not accepted, nil if it is.
func (l *backlog) refusal(sv *service, m *models.Query) error {
	switch {
	case badQuery(m) || m.Accuracy > sv.Accuracy || math.IsNaN(m.Accuracy):
		return ErrBadQuery
	case l.draining:
		return ErrDraining
	case m.Deadline <= l.now:
		return ErrExpired
	case l.queries[m.ID] != nil:
		return ErrDuplicateQuery
	case sv.family.queued() >= sv.QueueLimit:
		return sv.full
	}
	return nil
}

// enqueue puts a query without a batch into the queue of its service.
func (l *backlog) enqueue(q *query) {
	sv := l.services[q.Service]
	whole := q.span(sv.Operators)
	q.Rank = l.rankOf(q, whole, 0)
	if _, sorts := l.policy.(triager); sorts && sv.places() > 0 && !sv.BestEffort && !q.Rank.Filler {
		v := l.host.first(sv)
		whole.Share, q.Takes.Alone, q.Takes.Least = v.thrifty(whole, q.Deadline-l.now)
		q.Takes.Share, sv.Last.Alone = whole.Share, q.Takes.Alone
		if whole.Size = sv.MaxBatch; q.Size < whole.Size {
			q.Takes.Full = v.predict.alone(whole).Latency
		}
	}
	sv.queue.push(q)
	sv.view.queue.joined(q)
	l.await(q)
	sv.line.Stale = sv.line.Stale || sv.queue.top() == q
}

// await watches the deadline of a query in a queue.
func (l *backlog) await(q *query) {
	l.waiting.push(q)
	if q.Priority > 0 {
		l.ranked++
	}
}

func (l *backlog) dequeue(q *query) *query {
	sv := l.services[q.Service]
	if q.Priority > 0 {
		l.ranked--
	}
	sv.view.queue.left(q)
	sv.queue.remove(q.queuePos)
	sv.line.Stale = true
	return l.waiting.remove(q.expiryPos)
}

// rankOf returns the rank of a query of which a span is left, and so much after it that it
// must end earlier than at its deadline.
func (l *backlog) rankOf(q *query, left models.Span, later time.Duration) rank {
	r := rank{
		Filler:   q.Rank.Filler,
		Level:    level(q.Priority),
		Key:      l.policy.key(work{q.Arrival, q.Deadline - later, left, l.host.predict(l.services[q.Service])}),
		Arrival:  q.Arrival,
		ID:       q.ID,
		Priority: level(q.Priority),
	}
	if _, sheds := l.policy.(overlap); sheds {
		r.Level = 0
	}
	return r
}

// form makes a batch of queries, which it takes out of their queue, and binds it to a
// device.
func (l *backlog) form(c *candidate, v *device) *batch {
	b := l.pool.batch(c.service)
	l.lastID++
	b.id, b.device, b.Started = l.lastID, v, l.now
	b.SeqLen, b.Rank = c.head.SeqLen, c.head.Rank
	for _, q := range c.members {
		b.add(l.dequeue(q))
	}
	if c.service.MaxBatch <= 1 { // several queries run back to back
		b.Size = c.head.Size
	}
	return b
}

// candidate returns a batch as it will go on from operator next, once the
// round that runs is over. Somebody must want it.
func (l *backlog) candidate(b *batch, next int) candidate {
	c := b.candidate()
	c.rest.Start = next
	c.rank, c.deadline = l.standing(b, c.rest)
	return c
}

// standing returns the rank and the deadline of a batch of which a span is
// left: those of its most urgent and its latest member that are not cancelled, so much
// earlier as it has stages to go. There must be one.
func (l *backlog) standing(b *batch, left models.Span) (least rank, latest time.Duration) {
	first, later, priority := true, b.Later(), math.MaxInt
	for _, q := range b.members {
		if q.Cancelled {
			continue
		}
		r := l.rankOf(q, left, later)
		priority = min(priority, r.Priority)
		if first || r.before(&least) {
			least = r
		}
		if first || q.Deadline-later > latest {
			latest = q.Deadline - later
		}
		first = false
	}
	least.Priority = priority
	return least, latest
}

// pause makes a batch wait for its next round.
func (l *backlog) pause(b *batch) {
	b.Rank, b.Deadline = l.standing(b, b.rest())
	b.replica().paused.push(b)
	l.host.hold(b.device, 1)
	l.paused.push(b)
}

func (l *backlog) unpause(b *batch) {
	b.replica().paused.remove(b.pausedPos)
	l.host.hold(b.device, -1)
	l.paused.remove(b.expiryPos)
}

// takeBack dissolves a batch that was stopped before it ran an operator.
func (l *backlog) takeBack(b *batch) {
	l.release(b)
	b.Explores = false // it has shown nothing
	l.dissolve(b, func(q *query) {
		q.batch = nil
		l.enqueue(q)
	})
}

// again dissolves a batch that failed or has lost its worker, and queues its members again
// where that makes sense: in halves, as one of them may be at fault and nobody can say which,
// or each alone if the worker has died of them.
func (l *backlog) again(b *batch, status models.Status) {
	if status == models.SpanFailed {
		l.release(b)
	}
	k, n := 0, 0
	for _, q := range b.members {
		if !q.Cancelled {
			n++
		}
	}
	l.dissolve(b, func(q *query) {
		k++
		if status != models.SpanFailed {
			if q.Retries >= l.maxRetries || !l.canFinish(q) {
				l.answer(q, Failed, ReasonWorkerLost)
				return
			}
			q.Retries++
		}
		if q.halved(b.id, k-1, n); status == models.SpanCrashed {
			q.Part, q.Apart = 2*uint64(b.id), true
		}
		q.batch = nil
		l.services[q.Service].metrics.Retried++
		l.enqueue(q)
	})
}

// verdict applies to the queued suspects what a batch of them has shown. If it has failed, it
// clears all others: there is most likely one culprit, and that has run. If it has succeeded
// and was the last of its half, the culprit is in the other half, which is halved again without
// a run as a whole. So a batch of n with one culprit costs about log2(n) further runs. It
// reports whether it has changed which queries may be batched.
func (l *backlog) verdict(b *batch, failed bool) (changed bool) {
	part := b.members[0].Part
	if part == 0 {
		return false
	}
	var others []*query
	for _, sv := range b.service.family.members {
		for _, q := range sv.queue.items {
			switch {
			case q.Part == part && !failed:
				return false // they have yet to run
			case q.Part>>1 == part>>1:
				others = append(others, q)
			}
		}
	}
	slices.SortFunc(others, func(a, b *query) int { return cmp.Compare(a.ID, b.ID) })
	if !failed && len(others) > 0 {
		l.lastID++ // which no batch has
	}
	for k, q := range others {
		if q.halved(l.lastID, k, len(others)); failed {
			q.Part, q.Apart = 0, false
		}
		l.services[q.Service].line.Stale = true
	}
	return len(others) > 0
}

// canFinish reports whether a query that ran now, alone, would be in time.
func (l *backlog) canFinish(q *query) bool {
	own := l.services[q.Service]
	return q.Deadline > l.now && (q.Rank.Filler || slices.ContainsFunc(own.family.members, func(sv *service) bool {
		return (sv == own || q.fits(sv) && sv.runs(nil)) && l.now+l.host.aloneOn(nil, sv, q).Latency <= q.Deadline
	}))
}

// abandon ends a batch whose worker may hold intermediates.
func (l *backlog) abandon(b *batch, result Result, reason Reason) {
	if b.pausedPos >= 0 {
		l.unpause(b)
	}
	l.release(b)
	l.end(b, result, reason)
}

func (l *backlog) release(b *batch) {
	if !b.Reserved {
		l.released.add(b.held())
	}
}

// end answers every member of a batch.
func (l *backlog) end(b *batch, result Result, reason Reason) {
	l.dissolve(b, func(q *query) { l.answer(q, result, reason) })
}

// dissolve answers the members of a batch that are cancelled, and gives it the
// others that have no answer yet.
func (l *backlog) dissolve(b *batch, give func(q *query)) {
	if b.Explores {
		b.service.exploration(b.device).ended(l.now, b, false)
	}
	for _, q := range b.members {
		switch {
		case q.Answered:
			l.pool.putQuery(q)
		case q.Cancelled:
			l.answer(q, Cancelled, ReasonCancelled)
		default:
			give(q)
		}
	}
	l.routes.vacate(b)
	l.pool.putBatch(b)
}

// answer ends a query that is in no queue. One that was tried again after its
// worker was lost owes its failure to that.
func (l *backlog) answer(q *query, result Result, reason Reason) {
	l.report(q, result, reason)
	l.pool.putQuery(q)
}

// report gives a query its answer.
func (l *backlog) report(q *query, result Result, reason Reason) {
	if result == Dropped && q.Retries > 0 {
		result, reason = Failed, ReasonWorkerLost
	}
	for i, v := range l.host.devices {
		if v.kind == i && reason == ReasonCannotFinish { // what its estimate forbids may be doubted
			l.services[q.Service].exploration(v).remember(l.now, q)
		}
	}
	a := Answer{
		Query: q.ID, Service: q.Service, Result: result, Reason: reason,
		Retries: q.Retries, At: l.now, Queue: l.now - q.Arrival,
	}
	if b := q.batch; b != nil && b.id != 0 && !b.Reserved {
		a.Batch, a.BatchSize, a.Device, a.Started, a.Run = b.id, b.Size, b.device.index, b.Started, b.Run
		a.Queue, a.InUse = b.Started-q.Arrival, b.Overrun.End > 0
	}
	l.services[q.Service].metrics.count(&a, q.Deadline)
	l.answers.add(a)
	delete(l.queries, q.ID)
}

// drain is a list that is taken whole. Two buffers take turns, so that what
// was taken stays valid while the other fills.
type drain[T any] struct{ fill, taken []T }

func (d *drain[T]) add(item T) { d.fill = append(d.fill, item) }

func (d *drain[T]) take() []T {
	d.fill, d.taken = d.taken[:0], d.fill
	return d.taken
}
