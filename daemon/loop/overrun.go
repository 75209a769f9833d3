package loop

import (
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// overruns are the spans that run on beside the rounds, after they have exceeded
// their limits, and what their workers still use.
type overruns struct {
	env     *env
	held    map[models.BatchID][]heldQuery
	learned map[uint64]*predictor.Overrun // by round
}

// heldQuery is the memory of a query that has its answer, while a worker still
// reads it.
type heldQuery struct {
	service *query.Service
	memory  query.Memory
	sort    querySort
	began   time.Duration // when its batch did
}

// overrunLogEvery is how often the log has a line about the overruns of a service:
// on a host that is too busy there may be many, and each of them is counted.
const overrunLogEvery = 10 * time.Second

// count counts an overrun of a service.
func (o *overruns) count(s *service) {
	s.line.overruns++
	if now := o.env.now(); s.overrunLogged == 0 || now-s.overrunLogged >= overrunLogEvery {
		s.overrunLogged = now
		o.env.log.Warn().Str("service", s.config.Name).Uint64("overruns", s.line.overruns).
			Msg("overrun: operators take far longer than predicted; other services continue")
	}
}

// keep holds the memory of a query that is answered although its batch runs on, and
// has the batch ended if nobody else waits for it.
func (o *overruns) keep(p *pending, a *overlap.Answer) {
	if p != nil {
		p.lent = true
		o.held[a.Batch] = append(o.held[a.Batch], heldQuery{p.call.Service, p.call.Memory, sortOf(p.call), a.Started})
	}
	if waiting, _ := o.env.scheduler.Unanswered(a.Batch); len(waiting) == 0 {
		o.env.devices[a.Device].exec.Abandon(a.Service, a.Batch)
	}
}

// learn lets the predictor of a device learn from a round once all its spans have ended.
func (o *overruns) learn(d *device, round uint64, ended models.SpanOutcome) {
	if r := o.learned[round]; r != nil && r.Ended(d.kind.predictor, o.env.now(), ended) {
		delete(o.learned, round)
	}
}

// landed gives back what the batches of spans that have ended at last had used.
func (o *overruns) landed(outcome *executor.Outcome) {
	for i := range outcome.Spans {
		batch := outcome.Spans[i].Span.Batch
		for _, h := range o.held[batch] {
			h.service.Backend.Free(h.service, h.memory)
		}
		delete(o.held, batch)
	}
}
