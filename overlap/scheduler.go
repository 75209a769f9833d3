package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Scheduler decides which spans run together. Events must come in the order of
// their time; an earlier time is taken as the latest seen.
//
// Answers and Released fill up until they are drained, so the caller drains
// them after every event.
type Scheduler struct {
	backlog
	flight

	draining bool
	triages  uint64    // made so far; a query remembers the last that postponed it
	draft    *decision // the plan, or where the next decision is made
	planned  bool      // draft is a plan
	last     *decision // the one behind the last round
	metrics  Metrics

	explained Explanation // reused by Explain
}

// New returns an idle scheduler, or every fault of the configuration.
func New(config Config) (*Scheduler, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return newScheduler(config, policyNamed(config.Policy)), nil
}

func newScheduler(config Config, p policy) *Scheduler {
	s := &Scheduler{backlog: newBacklog(config, p)}
	s.draft, s.last = newDecision(s, config.Ways), newDecision(s, config.Ways)
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
	sv.LastSize, sv.LastSeqLen = m.Size, m.SeqLen
	s.overturn()
	q := s.pool.query()
	q.Query, q.Rank.Filler = m, sv.BestEffort
	s.queries.put(q)
	s.enqueue(q)
	return nil
}

func (s *Scheduler) refusal(sv *service, m *models.Query) error {
	switch {
	case badQuery(m):
		return ErrBadQuery
	case s.draining:
		return ErrDraining
	case m.Deadline <= s.now:
		return ErrExpired
	case s.queries.get(m.ID) != nil:
		return ErrDuplicateQuery
	case sv.queue.len() >= sv.QueueLimit:
		return sv.full
	}
	return nil
}

// Cancel gives up a query whose client has left. running reports that the batch
// of the query runs now; if nobody else wants that batch, stop names it, and
// its worker should be asked to stop at the next operator boundary. A query
// that is unknown or answered is left alone.
func (s *Scheduler) Cancel(now time.Duration, id models.QueryID) (stop models.BatchID, running bool) {
	s.clock(now)
	q := s.queries.get(id)
	if q == nil || q.Cancelled {
		return 0, false
	}
	s.overturn()
	b := q.batch
	if b == nil {
		s.answer(s.dequeue(q), Cancelled, ReasonCancelled)
		return 0, false
	}
	q.Cancelled = true
	if b.Overrun > 0 {
		s.relieve(b)
	}
	switch wanted := b.wanted(); {
	case b.running && !wanted:
		return b.id, true
	case b.running:
		return 0, true
	case !wanted:
		s.abandon(b, Cancelled, ReasonCancelled)
	default:
		b.Rank, b.Deadline = s.standing(b, b.rest())
		b.service.paused.fix(b.pausedPos)
		s.paused.fix(b.expiryPos)
	}
	return 0, false
}

// Next returns the next round to run, after which the device is busy until
// Finish. It is false while the device is busy and when there is nothing to
// run; Wake then returns when to call it again though nothing happened. What Plan
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

// Plan chooses, while a round runs, the group that is to start when it ends:
// at the predicted latency after its start (Abacus, equation 3), or now if
// that has passed. Nothing is dequeued, dropped or answered. Next takes the
// plan if it still holds. While there is a plan already that no event has
// overturned, and while no round runs, Plan does nothing.
func (s *Scheduler) Plan(now time.Duration) {
	s.clock(now)
	if !s.busy || s.planned {
		return
	}
	s.draft.decide(max(s.now, s.round.Start+s.round.Predicted.Latency))
	if len(s.draft.group) > 0 || len(s.draft.drops) > 0 {
		s.planned = true
		s.metrics.Plans.Made++
	}
}

// overturn gives up the plan, if there is one.
func (s *Scheduler) overturn() {
	if s.planned {
		s.planned = false
		s.metrics.Plans.Overturned++
	}
}

// keepPlan reports whether the plan, if there is one, is to be carried out
// now, and gives it up if not.
func (s *Scheduler) keepPlan() bool {
	if s.planned && !s.draft.holds() {
		s.overturn()
	}
	kept := s.planned
	if s.planned = false; kept {
		s.metrics.Plans.Kept++
	}
	return kept
}

// commit drops what is to be dropped and starts the group, if there is one.
func (s *Scheduler) commit(planned bool) (Round, bool) {
	d := s.draft
	for _, o := range d.drops {
		if o.batch != nil {
			s.abandon(o.batch, Dropped, ReasonCannotFinish)
		} else {
			s.answer(s.dequeue(o.query), Dropped, ReasonCannotFinish)
		}
	}
	if len(d.group) == 0 {
		return Round{}, false
	}
	s.open(s.now, d.predicted, planned)
	s.metrics.Rounds++
	for _, i := range d.group {
		c := &d.candidates[i]
		b := c.batch
		if b == nil {
			b = s.form(c)
		} else {
			s.unpause(b)
		}
		s.start(b, c.end)
		c.rest.Batch = b.id
	}
	s.draft, s.last = s.last, s.draft
	return s.round, true
}

// Finish takes in how the round that runs has gone, and frees the device, or how
// an overrun of an earlier round has ended, see Allowed. A span whose worker was
// lost sends its queries back into the queue, as long as they can still finish and
// have retries left. So does one that failed, or that its worker died of, if
// several queries were merged in it: they run again one by one, so that the one at
// fault fails alone, which then is not run again. Tell Down before Finish, or Next
// may choose that service again.
func (s *Scheduler) Finish(now time.Duration, o models.Outcome) error {
	s.clock(now)
	if !s.busy || o.Round != s.round.Number {
		return s.land(&o)
	}
	var err error
	s.busy = false
	s.metrics.Busy += max(o.Took, 0)
	for i, b := range s.running {
		so, ok := outcomeOf(&o, b, s.round.Group.Spans[i])
		if !ok {
			err = ErrBadOutcome
		}
		s.running[i] = nil
		if so.Status == models.SpanOverrun {
			s.overturn()
			b.Overrun, b.service.overrun = s.round.Group.Spans[i].End, b
			s.relieve(b)
			continue
		}
		b.running = false
		b.Run += max(so.Took, 0)
		s.ran(b, so)
	}
	s.running = s.running[:0]
	return err
}

// land takes in how overruns have ended, and lets their batches go on.
func (s *Scheduler) land(o *models.Outcome) error {
	for i := range o.Spans {
		b := s.overrunOf(o.Spans[i].Span.Batch)
		if b == nil {
			return ErrUnknownRound
		}
		so, ok := outcomeOf(o, b, b.span(b.Overrun))
		b.running, b.Overrun, b.service.overrun = false, 0, nil
		b.Run += max(so.Took, 0)
		s.overturn()
		s.ran(b, so)
		if !ok {
			return ErrBadOutcome
		}
	}
	return nil
}

// ran moves a batch on after one of its spans has ended.
func (s *Scheduler) ran(b *batch, so models.SpanOutcome) {
	if so.Status != models.SpanDone {
		s.overturn()
	}
	switch alone := len(b.members) == 1; {
	case so.Status == models.SpanFailed && alone:
		s.abandon(b, Failed, ReasonModelFailed)
	case so.Status == models.SpanFailed:
		s.takeApart(b)
	case so.Status == models.SpanCrashed && alone:
		s.end(b, Failed, ReasonWorkerLost)
	case so.Status == models.SpanLost, so.Status == models.SpanCrashed:
		s.lose(b)
	case so.Reached == b.service.Operators:
		b.service.proved(s.now, b.Run)
		s.end(b, Finished, ReasonNone)
	case !b.wanted():
		s.abandon(b, Cancelled, ReasonCancelled)
	case b.service.Down:
		s.lose(b)
	case so.Reached == 0:
		s.takeBack(b)
	default:
		b.Next = so.Reached
		s.pause(b)
	}
}

// expire drops what waits past its deadline, and answers what of an overrun is
// past it. A plan has foreseen what is past
// by the time that it is for.
func (s *Scheduler) expire() {
	for s.waiting.len() > 0 && s.waiting.top().Deadline <= s.now {
		q := s.dequeue(s.waiting.top())
		s.expired(q.Deadline)
		s.answer(q, Dropped, ReasonDeadlinePassed)
	}
	for s.paused.len() > 0 && s.paused.top().Deadline <= s.now {
		s.expired(s.paused.top().Deadline)
		s.abandon(s.paused.top(), Dropped, ReasonDeadlinePassed)
	}
	for _, sv := range s.services {
		if sv.overrun != nil {
			s.relieve(sv.overrun)
		}
	}
}

func (s *Scheduler) expired(deadline time.Duration) {
	if s.planned && deadline > s.draft.at {
		s.overturn()
	}
}

// Drain makes Arrive refuse every further query. What was accepted is served
// to its end, after which the scheduler is Idle.
func (s *Scheduler) Drain(now time.Duration) {
	s.clock(now)
	s.draining = true
}

// Idle reports whether every accepted query is answered and nothing runs.
func (s *Scheduler) Idle() bool {
	return s.queries.count == 0 && !s.busy && !slices.ContainsFunc(s.services, func(sv *service) bool { return sv.overrun != nil })
}

// Metrics returns a copy of the counters, by service ID. Those of a service
// that was removed are zero, its name too.
func (s *Scheduler) Metrics() Metrics {
	m := s.metrics
	m.Services = make([]ServiceMetrics, len(s.services))
	for i, sv := range s.services {
		if sv.removed {
			continue
		}
		m.Services[i] = sv.metrics
		m.Services[i].Down = sv.Down
		m.Services[i].Queued = sv.queue.len()
		m.Services[i].Paused = sv.paused.len()
	}
	return m
}

// Waiting appends how the queue of each service stands.
func (s *Scheduler) Waiting(to []Waiting) []Waiting {
	for _, sv := range s.services {
		to = append(to, sv.waiting(s.triages))
	}
	return to
}

// Explain returns what was behind the last round, as it stood when it was first
// asked about that round. Its slices are valid until it is asked about another.
func (s *Scheduler) Explain() Explanation {
	d, e := s.last, &s.explained
	if e.Round == s.round.Number && e.Round > 0 {
		return *e // the log, the timeline and the metrics ask about each round
	}
	*e = Explanation{
		Round: s.round.Number, Planned: s.round.Planned, For: d.at,
		Candidates: e.Candidates[:0], Dropped: e.Dropped[:0],
		Asked: d.asked, Solo: d.solo,
	}
	if d.limit != forever {
		e.Headroom = d.limit - d.at
	}
	for i := range d.candidates {
		c := &d.candidates[i]
		explained := explain(c.rank.ID, c.rest, c.deadline, d.at)
		explained.Solo, explained.End, explained.Tried = c.solo, c.end, c.tried
		e.Candidates = append(e.Candidates, explained)
	}
	for place, i := range d.group {
		e.Candidates[i].Place = place + 1
	}
	for _, o := range d.drops {
		e.Dropped = append(e.Dropped, explain(o.urgent, o.rest, o.deadline, d.at))
	}
	return *e
}
