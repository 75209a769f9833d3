package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// defaultOverrunFactor is that of the daemon.
const defaultOverrunFactor = 2

// late is an overrun: a detached span, which its round did not wait for. It runs alongside
// the following rounds, and does not slow them down.
type late struct {
	node  *node
	round uint64

	// outcome is the outcome with which the span ends.
	outcome models.SpanOutcome

	start time.Duration
	end   time.Duration

	// learned collects what the predictor learns from the span's round.
	learned *predictor.Overrun

	// over is set once the overrun has ended or was replaced. Its timer then has no effect.
	over bool
}

// limitOf returns the time until which a round that starts at the given time may run. A
// round without a known bound may run without limit; it occurs only in baselines whose
// authors have no such limit.
func (n *lane) limitOf(start, bound time.Duration) time.Duration {
	o, ok := n.control.scheduler.(overruns)
	if bound == 0 || !ok {
		return never
	}
	return start + o.Allowed(n.place, bound, cmp.Or(n.world.scenario.OverrunFactor, defaultOverrunFactor))
}

// setApart ends the round and detaches the spans that are still running.
func (n *lane) setApart() {
	var open []*late
	for i := range n.outcome.Spans {
		o := &n.outcome.Spans[i]
		if o.Status == models.SpanLost {
			n.group.Spans = nil // the predictor learns nothing from this round
			continue
		}
		l := &late{node: n.node, round: n.outcome.Round, outcome: *o, start: n.round.Start, end: n.round.End}
		l.outcome.Took = n.round.Took
		open = append(open, l)
		o.Status, o.Reached = models.SpanOverrun, o.Span.Start
	}
	learned := predictor.NewOverrun(n.group, scaled(n.world.now-n.round.Start, 1/n.slow), len(open))
	for _, l := range open {
		l.learned = learned
		n.late = append(n.late, l)
		n.world.timers.push(timer{at: l.end, kind: overrunEnds, late: l})
	}
	n.cut(n.world.now)
}

// abandon stops an overrun at its next operator, because no client waits for its queries.
func (n *node) abandon(batch models.BatchID) {
	for _, l := range n.late {
		s := &l.outcome.Span
		if s.Batch != batch || l.outcome.Status != models.SpanDone {
			continue
		}
		done := min(float64(n.world.now-l.start)/float64(max(l.end-l.start, 1)), 1)
		reached := min(s.Start+int(math.Ceil(done*float64(s.Len()))), s.End)
		took := time.Duration(float64(l.end-l.start) * float64(reached-s.Start) / float64(s.Len()))
		l.outcome.Status, l.outcome.Reached, l.outcome.Took = models.SpanStopped, reached, max(took, 1)
		l.over = true
		stopped := *l
		stopped.over, stopped.end = false, max(l.start+took, n.world.now)
		n.late[slices.Index(n.late, l)] = &stopped
		n.world.timers.push(timer{at: stopped.end, kind: overrunEnds, late: &stopped})
		return
	}
}

// land ends an overrun and reports it to the scheduler.
func (l *late) land() error {
	if l.over {
		return nil
	}
	n := l.node
	l.over = true
	n.late = slices.DeleteFunc(n.late, func(o *late) bool { return o == l })
	l.learned.Ended(n.predictor, n.world.now, l.outcome)
	n.control.touched()
	if n.world.scenario.Observer.late != nil {
		n.world.scenario.Observer.late(n.index, &l.outcome)
	}
	return n.control.step(overlap.Event{Kind: overlap.Finish, Outcome: models.Outcome{Round: l.round, Device: n.place, Spans: []models.SpanOutcome{l.outcome}}})
}

// loseLate ends the overruns of a service whose worker has died.
func (n *node) loseLate(service models.ServiceID) error {
	for _, l := range slices.Clone(n.late) {
		if l.outcome.Span.Service == service {
			l.outcome.Status, l.outcome.Reached = models.SpanLost, l.outcome.Span.Start
			if err := l.land(); err != nil {
				return err
			}
		}
	}
	return nil
}
