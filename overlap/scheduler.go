package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Scheduler decides which spans run together. Events must come in the order of
// their time; an earlier time is taken as the latest seen. The caller gives it an event by Step,
// calls Ready until there is nothing more to do, and lets it plan ahead by Advance.
type Scheduler struct {
	backlog backlog

	rounds  uint64    // given out so far
	triages uint64    // made so far; a query remembers the last that postponed it
	draft   *decision // the plan, or where the next decision is made
	planned bool      // draft is a plan, for its device
	last    *decision // the one behind the last round
	metrics Metrics

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
	s.backlog.routes.open(s, config.Links)
	s.draft, s.last = newDecision(s, config.Ways), newDecision(s, config.Ways)
	return s
}

// Step records an event. An error means that the scheduler has rejected it and that nothing has
// changed, except for ErrBadOutcome.
func (s *Scheduler) Step(now time.Duration, e *Event) error {
	switch e.Kind {
	case Arrive:
		return s.arrive(now, e.Query)
	case Cancel:
		if stop, _ := s.cancel(now, e.Query.ID); stop.Batch != 0 {
			s.backlog.stops.add(stop)
		}
	case Finish:
		return s.finish(now, e.Outcome)
	case Moved:
		return s.backlog.routes.moved(now, e.Move, e.Took, e.Status)
	case Down:
		s.down(now, e.Service, e.Device)
	case Up:
		s.up(now, e.Service, e.Device)
	case Load:
		return s.load(now, e.Definition)
	case Add:
		return s.add(now, e.Definition)
	case Change:
		return s.change(now, e.Definition)
	case Remove:
		return s.remove(now, e.Service)
	case Drain:
		s.backlog.clock(now)
		s.backlog.draining = true // what was accepted is served to its end, after which the scheduler is Idle
	default:
		return ErrUnknownEvent
	}
	return nil
}

// Ready returns what has ended since the last call, and if nothing has, decides what the next
// free device runs. So a caller answers first and starts rounds then: it calls Ready until
// Wake is later than now, or Ready has returned nothing.
func (s *Scheduler) Ready(now time.Duration) (r Ready) {
	ended := s.Ended()
	if !ended {
		if _, ok := s.next(now); ok {
			r.Round = &s.last.device.slot(s.rounds).round
		}
	}
	r.Answers, r.Released, r.Stops, r.Moves = s.backlog.answers.take(), s.backlog.released.take(), s.backlog.stops.take(), s.backlog.moves.take()
	at, ok := s.backlog.wake()
	switch {
	case r.Round != nil || ended:
		r.Wake = now
	case ok:
		r.Wake = at
	default:
		r.Wake = Never
	}
	return r
}

// Planned reports whether a round was decided ahead that no event has overturned. Such a plan is
// no part of a [Snapshot].
func (s *Scheduler) Planned() bool { return s.planned }

// arrive queues a query. Unless it returns an error the query is accepted and
// gets one Answer.
func (s *Scheduler) arrive(now time.Duration, m models.Query) error {
	s.backlog.clock(now)
	sv := s.backlog.service(m.Service)
	if sv == nil {
		return ErrUnknownService
	}
	if err := s.backlog.refusal(sv, &m); err != nil {
		sv.metrics.Refused[ReasonOf(err)]++
		return err
	}
	sv.metrics.Arrived++
	sv.Last.Size, sv.Last.SeqLen, sv.line.SeqLen = m.Size, m.SeqLen, m.SeqLen
	s.overturn()
	q := s.backlog.pool.query()
	q.Query, q.Rank.Filler, q.Apart = m, sv.BestEffort, m.Alone
	s.backlog.queries[q.ID] = q
	s.backlog.enqueue(q)
	return nil
}

// cancel gives up a query whose client has left. running reports that the batch
// of the query runs now, or is moved; if nobody else wants that batch, stop names it, and
// its worker should be asked to stop at the next operator boundary. A query
// that is unknown or answered is left alone.
func (s *Scheduler) cancel(now time.Duration, id models.QueryID) (stop Held, running bool) {
	s.backlog.clock(now)
	q := s.backlog.queries[id]
	if q == nil || q.Cancelled {
		return Held{}, false
	}
	s.overturn()
	b := q.batch
	if b == nil {
		s.backlog.answer(s.backlog.dequeue(q), Cancelled, ReasonCancelled)
		return Held{}, false
	}
	q.Cancelled = true
	if b.Overrun.End > 0 {
		s.backlog.relieve(b)
	}
	switch wanted := b.wanted(); {
	case b.Transit != settled:
		return Held{}, s.backlog.routes.recall(b)
	case b.running && !wanted:
		return b.held(), true
	case b.running:
		return Held{}, true
	case !wanted:
		s.backlog.abandon(b, Cancelled, ReasonCancelled)
	default:
		b.Rank, b.Deadline = s.backlog.standing(b, b.rest())
		b.replica().paused.fix(b.pausedPos)
		s.backlog.paused.fix(b.expiryPos)
	}
	return Held{}, false
}

// next returns the next round to run, after which its device is busy until
// Finish. Devices that are free are tried in their order. It is false while all are
// busy and when there is nothing that a free one could run; Wake then returns when to
// call it again though nothing happened. What Advance has decided is carried out if it
// still holds.
func (s *Scheduler) next(now time.Duration) (Round, bool) {
	s.backlog.clock(now)
	s.expire()
	s.backlog.routes.serve()
	waits := s.backlog.waiting.len() > s.backlog.queued()
	for i := s.backlog.host.idle.next(0); i >= 0; i = s.backlog.host.idle.next(i + 1) {
		if len(s.backlog.host.devices) > 1 && !waits {
			if i = s.backlog.host.idle.both(s.backlog.host.holding, i); i < 0 {
				break
			}
		}
		v := s.backlog.host.devices[i]
		planned := s.keepPlan(v)
		if !planned {
			s.backlog.families.vary(&s.backlog, v, s.backlog.now)
			s.draft.decide(v, s.backlog.now)
		}
		if r, ok := s.commit(planned); ok {
			return r, true
		}
	}
	return Round{}, false
}

// Advance decides ahead, while the caller has nothing else to do: after it has started what
// Ready has returned. It chooses the group that is to start when the first
// round ends: at the predicted latency after its start (Abacus, equation 3), or now if
// that has passed. Nothing is dequeued, dropped or answered. Ready takes the
// plan if it still holds. While there is a plan already that no event has
// overturned, and while a device is free, Advance does nothing. Nor does it where services have
// variants, since what waits would have to wait for another one, or for a device that gives shares,
// whose spans take long enough for a decision between them.
func (s *Scheduler) Advance(now time.Duration) {
	s.backlog.clock(now)
	if s.planned || len(s.backlog.families) > 0 || s.backlog.host.idle.next(0) >= 0 {
		return
	}
	var first *device
	for _, v := range s.backlog.host.devices {
		if v.units == 1 && (first == nil || v.ends() < first.ends()) {
			first = v
		}
	}
	if first == nil {
		return
	}
	s.draft.decide(first, max(s.backlog.now, first.ends()))
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

// keepPlan reports whether the plan, if there is one for a device, is to be carried
// out now, and gives it up if not.
func (s *Scheduler) keepPlan(v *device) bool {
	if s.planned && (s.draft.device != v || !s.draft.holds()) {
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
			s.backlog.routes.forget(o.batch) // what its way was found by is no longer so
			s.backlog.abandon(o.batch, Dropped, ReasonCannotFinish)
		} else {
			s.backlog.answer(s.backlog.dequeue(o.query), Dropped, ReasonCannotFinish)
		}
	}
	if len(d.group) == 0 {
		return Round{}, false
	}
	s.rounds++
	slot := d.device.open(s.rounds, s.backlog.now, d.predicted, planned)
	s.metrics.Rounds++
	for _, i := range d.group {
		c := &d.candidates[i]
		b := c.batch
		if b == nil {
			b = s.backlog.form(c, d.device)
			b.Explores = c.explores
		} else {
			s.backlog.unpause(b)
		}
		if c.batch == nil || b.Reserved {
			b.service.metrics.started(b)
		}
		if len(b.Legs) > 0 {
			s.backlog.routes.begin(b, c.solo.Latency)
		}
		slot.start(b, c.upTo(c.end))
		d.device.crowd.started(c.rest.Share)
		c.rest.Batch = b.id
	}
	s.backlog.host.take(d.device, d.device.width(d.candidates[d.group[0]].rest.Share))
	d.kept = planned
	s.draft, s.last = s.last, s.draft
	return slot.round, true
}

// finish takes in how the round of a device has gone, and frees the device, or how
// an overrun of an earlier round has ended, see Allowed. A span whose worker was
// lost sends its queries back into the queue, as long as they can still finish and
// have retries left. So does one that failed, or that its worker died of, if
// several queries were merged in it, so that the one at fault fails alone, which then is
// not run again.
func (s *Scheduler) finish(now time.Duration, o models.Outcome) error {
	s.backlog.clock(now)
	if o.Device < 0 || o.Device >= len(s.backlog.host.devices) {
		return ErrUnknownRound
	}
	v := s.backlog.host.devices[o.Device]
	slot := v.slot(o.Round)
	if slot == nil {
		return s.land(&o)
	}
	var err error
	units := v.width(slot.round.Spans[0].Share)
	slot.busy = false
	v.crowd.ended()
	s.backlog.host.take(v, -units)
	s.metrics.Busy += max(o.Took, 0) * time.Duration(units) / time.Duration(v.units)
	running := slot.running
	slot.running = slot.running[:0]
	for i, b := range running {
		so, ok := outcomeOf(&o, b, slot.round.Group.Spans[i])
		if !ok {
			err = ErrBadOutcome
		}
		running[i] = nil
		if so.Status == models.SpanOverrun {
			s.overturn()
			s.backlog.host.setApart(b, slot.round.Group.Spans[i])
			b.service.line.Stale = true
			s.backlog.relieve(b)
			continue
		}
		b.running = false
		b.Run += max(so.Took, 0)
		s.ran(b, so)
	}
	s.backlog.routes.freed(v.index)
	return err
}

// land takes in how overruns have ended, and lets their batches go on.
func (s *Scheduler) land(o *models.Outcome) error {
	for i := range o.Spans {
		b := s.backlog.host.overrunOf(o.Spans[i].Span.Batch)
		if b == nil {
			return ErrUnknownRound
		}
		so, ok := outcomeOf(o, b, b.span(b.Overrun.End))
		s.backlog.host.land(b)
		b.service.line.Stale = true
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
	b.service.Relapse.ended(s.backlog.now, b, so)
	alone, failed := len(b.members) == 1, so.Status == models.SpanFailed || so.Status == models.SpanCrashed
	if ended := so.Reached == b.service.Operators && so.Status <= models.SpanStopped; (failed || ended) && s.backlog.verdict(b, failed) {
		s.overturn()
	}
	switch {
	case so.Status == models.SpanFailed && alone:
		s.backlog.abandon(b, Failed, ReasonModelFailed)
	case so.Status == models.SpanCrashed && alone:
		s.backlog.end(b, Failed, ReasonWorkerLost)
	case failed, so.Status == models.SpanLost:
		s.backlog.again(b, so.Status)
	case so.Reached == b.service.Operators:
		s.backlog.routes.forget(b)
		b.service.exploration(b.device).ended(s.backlog.now, b, true)
		s.backlog.end(b, Finished, ReasonNone)
	case !b.wanted():
		s.backlog.abandon(b, Cancelled, ReasonCancelled)
	case !b.service.up.has(b.device.index):
		if len(b.service.family.members) > 1 {
			s.overturn() // another variant may answer
		}
		s.backlog.again(b, models.SpanLost)
	case so.Reached == 0:
		s.backlog.takeBack(b)
	case so.Reached == b.end():
		s.backlog.routes.forget(b)
		b.Next = so.Reached
		s.backlog.routes.leave(b)
	default:
		b.Next = so.Reached
		s.backlog.pause(b)
	}
}

// expire drops what waits past its deadline, and answers what of an overrun is
// past it. A plan has foreseen what is past
// by the time that it is for.
func (s *Scheduler) expire() {
	for s.backlog.waiting.len() > 0 && s.backlog.waiting.top().Deadline <= s.backlog.now {
		q := s.backlog.dequeue(s.backlog.waiting.top())
		s.expired(q.Deadline)
		s.backlog.answer(q, Dropped, ReasonDeadlinePassed)
	}
	for s.backlog.paused.len() > 0 && s.backlog.paused.top().Deadline <= s.backlog.now {
		b, reason := s.backlog.paused.top(), ReasonDeadlinePassed
		if s.expired(b.Deadline); b.Later() > 0 {
			reason = ReasonCannotFinish
		}
		s.backlog.abandon(b, Dropped, reason)
	}
	for _, b := range s.backlog.host.overruns {
		s.backlog.relieve(b)
	}
}

func (s *Scheduler) expired(deadline time.Duration) {
	if s.planned && deadline > s.draft.at {
		s.overturn()
	}
}

// Idle reports whether every accepted query is answered and nothing runs.
func (s *Scheduler) Idle() bool {
	return len(s.backlog.queries) == 0 && len(s.backlog.host.overruns)+len(s.backlog.onWay) == 0 && !slices.ContainsFunc(s.backlog.host.devices, (*device).busy)
}

// Metrics returns a copy of the counters, by service ID. Those of a service
// that was removed are zero, its name too.
func (s *Scheduler) Metrics() Metrics {
	m := s.metrics
	m.Services = make([]ServiceMetrics, len(s.backlog.services))
	for i, sv := range s.backlog.services {
		if sv.removed {
			continue
		}
		m.Services[i] = sv.metrics
		m.Services[i].Down = sv.down()
		m.Services[i].Queued = sv.queue.len()
		m.Services[i].Paused, _ = sv.started()
	}
	return m
}

// Waiting appends how the queue of each service stands.
func (s *Scheduler) Waiting(to []Waiting) []Waiting {
	for _, sv := range s.backlog.services {
		to = append(to, sv.waiting(s.triages))
	}
	return to
}

// Explain returns what was behind the last round, as it stood when it was first
// asked about that round. Its slices are valid until it is asked about another.
func (s *Scheduler) Explain() Explanation {
	d, e := s.last, &s.explained
	if e.Round == s.rounds && e.Round > 0 {
		return *e // the log, the timeline and the metrics ask about each round
	}
	*e = Explanation{
		Round: s.rounds, Planned: d.kept, For: d.at,
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

// Ended reports whether something has ended that [Scheduler.Ready] has not returned yet. If so,
// its next call decides nothing.
func (s *Scheduler) Ended() bool {
	return len(s.backlog.answers.fill)+len(s.backlog.released.fill)+len(s.backlog.stops.fill)+len(s.backlog.moves.fill) > 0
}

// Members returns the queries of a batch that is in a round that runs, in the
// order in which they were gathered, and nil for any other batch. The slice is
// valid until the next call of Ready.
func (s *Scheduler) Members(id models.BatchID) []models.QueryID {
	for _, v := range s.backlog.host.devices {
		for k := range v.slots {
			for i, b := range v.slots[k].running {
				if b.id == id {
					return v.slots[k].round.Queries[i]
				}
			}
		}
	}
	return nil
}

// Paused returns how many batches are paused on a device.
func (s *Scheduler) Paused(device int) int { return s.backlog.host.devices[device].paused }

// Allowed returns for how long a round of a device may run that is predicted to stay within a
// bound, 0 if nothing is known of it. What has not ended by then is an overrun:
// once a round has taken its bound times factor, the device has changed, or the
// estimate was of something else. The caller then ends it by Finish with
// SpanOverrun for each span that still runs.
//
// An overrun keeps running during the rounds that follow. Its service has no span in
// them, because its worker is busy. To the others the device seems slower than usual,
// and the predictor adapts as to any other drift. Each overrun counts as an equal share
// of the device when the time of a round is allowed.
// Its queries are answered at their deadlines, or at once when they are
// cancelled, see Answer.InUse. When it ends, Finish takes its outcome under the
// number of its round, and the batch goes on.
func (s *Scheduler) Allowed(device int, bound time.Duration, factor float64) time.Duration {
	shares, strictest := 1, patienceShare*maxPatience
	for _, sv := range s.backlog.services {
		if sv.busy.has(device) {
			shares++
		}
		if sv.promises() {
			strictest = min(strictest, sv.QoSTarget)
		}
	}
	return max(time.Duration(factor*float64(shares)*float64(bound)), strictest/patienceShare)
}

// Unanswered returns the queries of an overrun that have no answer yet, in the
// order in which they were gathered, and whether those are all of its batch. Of any
// other batch there are none.
func (s *Scheduler) Unanswered(id models.BatchID) (waiting []models.QueryID, all bool) {
	b := s.backlog.host.overrunOf(id)
	if b == nil {
		return nil, false
	}
	for _, q := range b.members {
		if !q.Answered {
			waiting = append(waiting, q.ID)
		}
	}
	return waiting, len(waiting) == len(b.members)
}

// Moving returns the queries of a batch that Moves has named and for which no event Moved has come,
// in the order in which they were gathered, including those that were cancelled.
func (s *Scheduler) Moving(id models.BatchID) (members []models.QueryID) {
	for _, b := range s.backlog.onWay {
		if b.id != id {
			continue
		}
		for _, q := range b.members {
			members = append(members, q.ID)
		}
	}
	return members
}

// Routed reports whether [Scheduler.Ready] may change what waits for a pipeline without returning anything.
func (s *Scheduler) Routed() bool { return len(s.backlog.piped)+len(s.backlog.onWay) > 0 }
