package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// defaultOverrunFactor is that of the daemon's configuration.
const defaultOverrunFactor = 2

// late is a span that its round did not wait for. It runs beside the rounds that follow,
// which take no longer for that.
type late struct {
	node    *node
	round   uint64
	outcome models.SpanOutcome // with which it will end
	start   time.Duration
	end     time.Duration
	learned *predictor.Overrun // of its round
	over    bool
}

// limit returns until when a round may run that starts at a time. One of which nothing
// is known may run for ever: it is that of a baseline whose authors had no such limit.
func (n *node) limitOf(start, bound time.Duration) time.Duration {
	if bound == 0 {
		return never
	}
	return start + n.scheduler.Allowed(n.place, bound, cmp.Or(n.scenario.OverrunFactor, defaultOverrunFactor))
}

// setApart ends the round without the spans that still run.
func (n *node) setApart() {
	var open []*late
	for i := range n.outcome.Spans {
		o := &n.outcome.Spans[i]
		if o.Status == models.SpanLost {
			n.group.Spans = nil // nothing is learned of the round
			continue
		}
		l := &late{node: n, round: n.outcome.Round, outcome: *o, start: n.round.Start, end: n.round.End}
		l.outcome.Took = n.round.Took
		open = append(open, l)
		o.Status, o.Reached = models.SpanOverrun, o.Span.Start
	}
	learned := predictor.NewOverrun(n.group, scaled(n.now-n.round.Start, 1/n.slow), len(open))
	for _, l := range open {
		l.learned = learned
		n.late = append(n.late, l)
		n.timers.push(timer{at: l.end, kind: overrunEnds, late: l})
	}
	n.cut(n.now)
}

// abandon stops an overrun that nobody waits for any more at its next operator.
func (n *node) abandon(batch models.BatchID) {
	for _, l := range n.late {
		s := &l.outcome.Span
		if s.Batch != batch || l.outcome.Status != models.SpanDone {
			continue
		}
		done := min(float64(n.now-l.start)/float64(max(l.end-l.start, 1)), 1)
		reached := min(s.Start+int(math.Ceil(done*float64(s.Len()))), s.End)
		took := time.Duration(float64(l.end-l.start) * float64(reached-s.Start) / float64(s.Len()))
		l.outcome.Status, l.outcome.Reached, l.outcome.Took = models.SpanStopped, reached, max(took, 1)
		l.over = true
		stopped := *l
		stopped.over, stopped.end = false, max(l.start+took, n.now)
		n.late[slices.Index(n.late, l)] = &stopped
		n.timers.push(timer{at: stopped.end, kind: overrunEnds, late: &stopped})
		return
	}
}

// land ends an overrun.
func (l *late) land() error {
	if l.over {
		return nil
	}
	n := l.node
	l.over = true
	n.late = slices.DeleteFunc(n.late, func(o *late) bool { return o == l })
	l.learned.Ended(n.predictor, n.now, l.outcome)
	n.touched()
	if n.scenario.Observer.late != nil {
		n.scenario.Observer.late(n.index, &l.outcome)
	}
	if err := n.scheduler.Finish(n.now, models.Outcome{Round: l.round, Device: n.place, Spans: []models.SpanOutcome{l.outcome}}); err != nil {
		return err
	}
	return n.settle()
}

// loseLate loses the overrun of a service whose worker has died.
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
