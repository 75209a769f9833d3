package loop

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// calls are the queries that the scheduler goroutine has accepted and not answered.
// Each is answered exactly once, whatever happens.
type calls struct {
	env      *env
	services *services
	pending  map[models.QueryID]*pending
	lent     map[models.BatchID][]lentMemory
}

// lentMemory is the memory of a query that has its answer, while a worker still reads it.
type lentMemory struct {
	service *query.Service
	memory  query.Memory
	sort    querySort
	began   time.Duration // when its batch did
}

// arrive hands a call to the scheduler, or answers it at once.
func (cs *calls) arrive(c *query.Call) {
	if c.Service.GivenUp.Load() {
		turnAway(c, c.Service.NotReady())
		return
	}
	q := models.Query{
		ID:       c.QueryID,
		Size:     c.Size,
		SeqLen:   c.SeqLen,
		Shape:    c.Shape,
		Arrival:  c.Arrival.Sub(cs.env.mail.epoch),
		Deadline: c.Deadline().Sub(cs.env.mail.epoch),
		Priority: c.Priority,
	}
	to := cs.address(c, &q)
	if to == nil { // the variant has just been taken away
		c.Answer(query.Reply{Err: query.ErrUnavailable})
		return
	}
	q.Service = to.ID
	under := cs.services.list[to.ID].probation()
	ruling := under.judge(cs.env.now(), sortOf(c))
	if ruling.wait > 0 {
		turnAway(c, unproven(c.Service, ruling.wait))
		return
	}
	q.Alone = ruling.alone
	if err := cs.env.step(overlap.Event{Kind: overlap.Arrive, Query: q}); err != nil {
		cs.env.emit(observe.Event{Kind: observe.Refused, At: cs.env.now(), Call: c, Err: err})
		c.Answer(query.Reply{Err: refusal(err)})
		return
	}
	if ruling.trial {
		under.trial = q.ID
	}
	p := c.Backend.(*pending)
	p.under, cs.pending[q.ID] = under, p
	cs.env.breadth.large(cs.env.now(), c, 0)
	for _, k := range cs.env.kinds {
		k.learning.Arrived(q.Arrival)
	}
	cs.env.emit(observe.Event{Kind: observe.Accepted, Call: c})
}

// turnAway answers a call that the scheduler never sees.
func turnAway(c *query.Call, why *query.Error) {
	c.Service.Stats.TurnAway(why)
	c.Answer(query.Reply{Err: why})
}

// address says for which service of the scheduler a call is, nil for none.
func (cs *calls) address(c *query.Call, q *models.Query) *query.Service {
	if len(c.Service.Variants) == 0 {
		return c.Service
	}
	f := cs.services.families[c.Service.Name]
	if f == nil {
		return nil
	}
	if c.Variant >= 0 {
		name := c.Service.Variants[c.Variant].Name
		q.Fixed = true
		for _, m := range f.variants {
			if m.variant == name {
				return m.entry
			}
		}
		return nil
	}
	f.live.Arrived(q.Arrival)
	q.Accuracy = c.LeastAccuracy
	var found *service
	for _, m := range f.variants {
		if cs.services.specs[m.entry.ID].Accuracy >= q.Accuracy && (found == nil || m.entry.Ready() && !found.entry.Ready()) {
			found = m
		}
	}
	if found == nil {
		return nil
	}
	return found.entry
}

// cancel withdraws a query whose client has left. What runs of it is stopped at the
// next operator, unless others are in its batch.
func (cs *calls) cancel(id models.QueryID) {
	if cs.pending[id] != nil {
		_ = cs.env.step(overlap.Event{Kind: overlap.Cancel, Query: models.Query{ID: id}})
	}
}

// ended gives the queries of a span that has run their outputs, or blames those that it failed for.
// status is what the scheduler learns of the span: it may not know that a worker crashed.
func (cs *calls) ended(s *executor.SpanOutcome, status models.Status) {
	if status == models.SpanCrashed {
		cs.convict(&s.Span, cs.queriesOf(&s.Span))
	}
	if status == models.SpanFailed || s.Status == models.SpanCrashed {
		cs.blame(cs.queriesOf(&s.Span), s.Err)
	}
	for i := range s.Queries {
		if p := cs.pending[s.Queries[i].ID]; p != nil {
			p.outputs = s.Queries[i]
		} else {
			s.Queries[i].Release()
		}
	}
}

// queriesOf returns the queries of the batch that a span ran. Of an overrun only those that
// still wait are known, and none is returned if that is not all.
func (cs *calls) queriesOf(s *models.Span) []models.QueryID {
	if ids := cs.env.scheduler.Members(s.Batch); ids != nil {
		return ids
	}
	if ids, all := cs.env.scheduler.Unanswered(s.Batch); all {
		return ids
	}
	return nil
}

// lend keeps the memory of a query that is answered although its batch runs on, and
// has the batch ended if nobody else waits for it.
func (cs *calls) lend(p *pending, a *overlap.Answer) {
	if p != nil {
		p.lent = true
		cs.lent[a.Batch] = append(cs.lent[a.Batch], lentMemory{p.call.Service, p.call.Memory, sortOf(p.call), a.Started})
	}
	if waiting, _ := cs.env.scheduler.Unanswered(a.Batch); len(waiting) == 0 {
		cs.env.devices[a.Device].exec.Abandon(a.Service, a.Batch)
	}
}

// giveBack frees what a batch has used that has ended at last.
func (cs *calls) giveBack(b models.BatchID) {
	for _, m := range cs.lent[b] {
		m.service.Backend.Free(m.service, m.memory)
	}
	delete(cs.lent, b)
}

// blame keeps why a batch failed, for the answer of the query that was alone in it.
// Several queries run again in smaller batches, and one that is not at fault must not
// be answered as if it were.
func (cs *calls) blame(members []models.QueryID, err error) {
	if len(members) != 1 {
		return
	}
	if p := cs.pending[members[0]]; p != nil {
		p.failure = err
	}
}

// convict records that a worker died while it ran a span, and refuses what waits of the sorts
// that rest from now on: else one client would have its queries end one worker after another.
func (cs *calls) convict(span *models.Span, members []models.QueryID) {
	now, of := cs.env.now(), cs.services.list[span.Service]
	began, p := now, of.probation()
	var sorts []querySort
	for _, h := range cs.lent[span.Batch] {
		began, sorts = min(began, h.began), append(sorts, h.sort)
	}
	for _, id := range members {
		if x := cs.pending[id]; x != nil {
			sorts = append(sorts, sortOf(x.call))
		}
	}
	if len(sorts) != 1 {
		p.diedMerged(now, sorts)
		return
	}
	p.died(now, began, sorts[0])
	cs.env.log.Warn().Str("service", of.config.Name).Str("sender", sorts[0].sender.String()).Int("deaths", p.deaths).
		Msg("a query crashed a worker: unknown senders and shapes run alone for now")
	for id, x := range cs.pending {
		if x.under != p || slices.Contains(members, id) {
			continue
		}
		if r := p.judge(now, sortOf(x.call)); r.wait > 0 {
			x.failure = unproven(x.call.Service, r.wait)
			cs.cancel(id)
		}
	}
}

// unproven returns the refusal of a query of a sort that workers died of, or that is unknown
// while they do.
func unproven(s *query.Service, wait time.Duration) *query.Error {
	return &query.Error{Status: http.StatusServiceUnavailable, Reason: query.ReasonQuarantined, RetryAfter: wait, Message: fmt.Sprintf(
		"service %s: queries of this shape from this sender, or from several, crashed its workers, and none has been answered since: try again in %v",
		s.Name, wait.Round(time.Second))}
}

// end answers the queries that are over.
func (cs *calls) end(answers []overlap.Answer) {
	for i := range answers {
		a := &answers[i]
		p, s := cs.pending[a.Query], cs.services.list[a.Service]
		e := observe.Event{Kind: observe.Answered, Answer: a, Target: s.config.Target}
		if p != nil {
			e.Call = p.call
		}
		cs.env.emit(e)
		if a.InUse {
			cs.lend(p, a)
		}
		if p == nil {
			continue // the query was abandoned
		}
		delete(cs.pending, a.Query)
		reply := cs.reply(p, a)
		p.under.answered(a.Query, sortOf(p.call), reply.Err == nil)
		for i := range reply.Outputs {
			cs.env.breadth.large(cs.env.now(), p.call, len(reply.Outputs[i].Data))
		}
		reply.Variant = s.variant
		p.call.Answer(reply)
	}
}

// reply makes the reply of a query that is over.
func (cs *calls) reply(p *pending, a *overlap.Answer) query.Reply {
	r := query.Reply{Queue: a.Queue, Compute: a.Run, Deadly: errors.Is(p.failure, executor.ErrExited) && !errors.Is(p.failure, executor.ErrKilled)}
	if a.Result != overlap.Finished {
		r.Err = cs.failure(p, a)
		return r
	}
	r.Outputs = p.outputs.Outputs
	return r
}

// failure returns what a client is told of a query without outputs.
func (cs *calls) failure(p *pending, a *overlap.Answer) *query.Error {
	service, reason := p.call.Service, a.Reason.String()
	unavailable := func(reason, format string, args ...any) *query.Error {
		return query.Unavailable(reason, "service "+service.Name+": "+fmt.Sprintf(format, args...))
	}
	internal := func(why string) *query.Error {
		return &query.Error{Status: http.StatusInternalServerError, Reason: reason, Message: "service " + service.Name + ": " + why}
	}
	var refused *query.Error
	switch {
	case errors.As(p.failure, &refused):
		return refused
	case errors.Is(p.failure, executor.ErrClosed), a.Reason == overlap.ReasonDraining:
		return query.ErrDraining
	case a.Reason == overlap.ReasonDeadlinePassed && a.InUse:
		return unavailable(reason, "the deadline passed while its batch ran far longer than predicted; send less at a time, or allow more time")
	case a.Reason == overlap.ReasonDeadlinePassed && !service.Ready():
		return unavailable(reason, "the deadline passed while its worker was restarting")
	case a.Reason == overlap.ReasonDeadlinePassed:
		return unavailable(reason, "the deadline passed after %v in the queue; send less, or allow more time", a.Queue)
	case a.Reason == overlap.ReasonCannotFinish:
		return unavailable(reason, "the query could not have finished before its deadline; send less, or allow more time")
	case a.Reason == overlap.ReasonCancelled:
		return query.Unavailable(query.ReasonCancelled, "the client disconnected")
	case a.Reason == overlap.ReasonWorkerLost && p.failure == nil:
		return unavailable(reason, "its worker failed, and there was no time to run the query again")
	case errors.Is(p.failure, wire.ErrTooLarge):
		return &query.Error{Status: http.StatusRequestEntityTooLarge, Reason: query.ReasonTooLarge,
			Message: "service " + service.Name + ": " + p.failure.Error()}
	case errors.Is(p.failure, wire.ErrMemory), errors.Is(p.failure, wire.ErrArenaFull):
		return unavailable(query.ReasonNoMemory, "%v", p.failure)
	case p.failure != nil:
		return internal(p.failure.Error())
	}
	return internal("the model failed")
}

// giveUp answers what is accepted and not answered. What still runs ends
// for nobody.
func (cs *calls) giveUp() {
	for id, p := range cs.pending {
		cs.cancel(id)
		delete(cs.pending, id)
		p.call.Answer(query.Reply{Err: query.ErrDraining})
	}
}

// abandon answers whatever is left when the executors are gone.
func (cs *calls) abandon() {
	for id, p := range cs.pending {
		delete(cs.pending, id)
		p.call.Answer(query.Reply{Err: query.ErrDraining})
	}
	close(cs.env.mail.ending)
	cs.env.mail.refuseAll()
}

// refusal translates an error of the scheduler's Arrive.
func refusal(err error) *query.Error {
	switch {
	case errors.Is(err, overlap.ErrQueueFull):
		return query.ErrQueueFull
	case errors.Is(err, overlap.ErrDraining):
		return query.ErrDraining
	case errors.Is(err, overlap.ErrExpired):
		return query.Unavailable(overlap.ReasonDeadlinePassed.String(), "the deadline had passed when the query arrived")
	}
	return &query.Error{Status: http.StatusInternalServerError, Reason: query.ReasonInternal, Message: err.Error()}
}
