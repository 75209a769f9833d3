package daemon

import (
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// scrapeTimeout is how long a scrape waits for the scheduler goroutine before
// it tells what it was told last.
const scrapeTimeout = 100 * time.Millisecond

// scrapers collect what a scrape tells of a daemon, one for each unit.
type scrapers []*scraper

func newScrapers(units []*unit, version, policy string) (all scrapers) {
	for _, u := range units {
		all = append(all, newScraper(u.backend, version, policy))
	}
	return all
}

// snapshot returns what all units tell as one.
func (s scrapers) snapshot() *metrics.Snapshot {
	parts := make([]*metrics.Snapshot, len(s))
	for i := range s {
		parts[i] = s[i].snapshot()
	}
	return metrics.Join(parts...)
}

// scraper collects what a unit tells. It is used by one goroutine at a time.
// At most one question of it waits in the inbox, whatever becomes of the loop.
type scraper struct {
	*backend
	version string
	policy  string
	last    *told         // by the loop
	next    *told         // what it is to tell: the loop's to write while it is asked
	asked   chan struct{} // is sent to once it has told, nil if it is not asked
}

func newScraper(b *backend, version, policy string) *scraper {
	n := len(b.Services())
	return &scraper{backend: b, version: version, policy: policy, last: newTold(n), next: newTold(n)}
}

// ask lets the loop tell how it stands. If it cannot be asked now, or does not
// answer in time, what it told last stays.
func (s *scraper) ask() {
	if s.asked == nil {
		asked, to := make(chan struct{}, 1), s.next
		select {
		case s.inbox <- message{ask: func(l *loop) { l.tellTo(to); asked <- struct{}{} }}:
			s.asked = asked
		default:
			return
		}
	}
	limit := time.NewTimer(scrapeTimeout)
	defer limit.Stop()
	select {
	case <-s.asked:
		s.last, s.next, s.asked = s.next, s.last, nil
	case <-s.done:
	case <-limit.C:
	}
}

// snapshot returns everything that is told of the unit now. It is valid until the
// next call.
func (s *scraper) snapshot() *metrics.Snapshot {
	s.ask()
	t, now := s.last, s.now()
	snap := &metrics.Snapshot{Version: s.version, Policy: s.policy, Record: t.record, Age: now - t.at, Scheduler: s.scheduler(now)}
	for i := range t.services {
		snap.Services = append(snap.Services, s.service(&t.services[i]))
	}
	if s.gpus != nil {
		snap.GPUs = s.gpus()
	}
	return snap
}

func (s *scraper) scheduler(now time.Duration) metrics.Scheduler {
	m, p := &s.last.scheduler, &s.last.predictor
	of := metrics.Scheduler{
		Schedulers: 1,
		Rounds:     m.Rounds, Busy: m.Busy, Made: m.Plans.Made, Kept: m.Plans.Kept, Overturned: m.Plans.Overturned,
		Inbox: len(s.inbox), InboxLimit: cap(s.inbox), BeatAge: now - time.Duration(s.beat.Load()),
		Predictor: p.Network, Unknown: p.Unknown,
	}
	for r := predictor.FallbackNone + 1; r < predictor.Fallbacks; r++ {
		of.Fallbacks = append(of.Fallbacks, metrics.Count{Reason: strings.ReplaceAll(r.String(), " ", "_"), N: p.Fallbacks[r]})
	}
	return of
}

func (s *scraper) service(t *toldService) metrics.Service {
	sv, m, w := t.service, &t.metrics, t.waiting
	counts := sv.Stats.Counts()
	of := metrics.Service{
		Name: sv.Name, Slot: int(sv.ID), Ready: sv.Ready(), Target: sv.QoSTarget, QueueLimit: sv.QueueLimit,
		Queued: m.Queued, Paused: m.Paused, Postponed: w.Postponed,
		Accepted: m.Arrived, Finished: m.Finished, Late: m.Late, Cancelled: m.Cancelled,
		Refused: countsOf(&m.Refused, overlap.ReasonQueueFull, overlap.ReasonDeadlinePassed, overlap.ReasonDraining),
		Dropped: countsOf(&m.Dropped, overlap.ReasonDeadlinePassed, overlap.ReasonCannotFinish),
		Failed:  countsOf(&m.Failed, overlap.ReasonWorkerLost, overlap.ReasonModelFailed),
		Batches: m.Batches, Merged: m.Merged, Retried: m.Retried,
		Restarts: t.restarts, Requests: requestsOf(&counts),
		Clocks: metrics.Clocks{Spans: counts.Spans.Count, Engine: counts.Spans.Took, Device: counts.Device.Took},
	}
	if m.Queued > 0 {
		of.OldestAge = max(s.last.at-w.Oldest, 0)
	}
	if state, err := s.exec.State(sv.ID); err == nil {
		of.IntermediateBytes, of.InputBytes, of.ResidentBytes = state.IntermediateBytes, state.InputBytes, state.ResidentBytes
	}
	return of
}

// countsOf names counts. The usual reasons are there from the start, so that
// their rates begin at 0; others once there was one.
func countsOf(counts *[overlap.ReasonCount]uint64, usual ...overlap.Reason) (named []metrics.Count) {
	for _, r := range usual {
		named = append(named, metrics.Count{Reason: r.String(), N: counts[r]})
		counts[r] = 0
	}
	for r, n := range counts {
		if n > 0 {
			named = append(named, metrics.Count{Reason: overlap.Reason(r).String(), N: n})
		}
	}
	return named
}

// requestsOf returns what was counted, as Triton divides it.
func requestsOf(c *query.Counts) metrics.Requests {
	r := metrics.Requests{
		Success: c.Success.Count, Queries: c.Queries, Executions: c.Executions,
		Request: c.Success.Took, Queue: c.Queue.Took, ComputeInfer: c.Compute.Took,
	}
	for _, f := range c.Failures {
		r.Failure = append(r.Failure, metrics.Count{Reason: f.Kind, N: f.Count})
	}
	return r
}

// answerMetrics answers a scrape.
func (e *Endpoint) answerMetrics(ctx *fasthttp.RequestCtx) {
	if e.metrics == nil {
		writeError(ctx, query.NotFound("there are no metrics: the configuration has metrics = false"))
		return
	}
	text, err := e.metrics()
	if err != nil {
		e.log.Error().Err(err).Msg("the metrics cannot be told")
		writeError(ctx, query.ErrInternal)
		return
	}
	ctx.SetContentType(metrics.ContentType)
	e.send(ctx, e.told(text))
}
