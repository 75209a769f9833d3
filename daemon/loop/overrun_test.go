package loop

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// apart counts the rounds that are ended without what still runs of them.
type apart struct {
	Workers
	rounds int
}

func (a *apart) SetApart(uint64) bool {
	a.rounds++
	return true
}

// A look at a round that comes late, since the host has stalled, gives the round as
// much time as the stall has taken, once.
func TestStallIsNoOverrun(t *testing.T) {
	workers := &apart{}
	o, d := newMailbox(), &device{exec: workers}
	limit := o.now() - time.Hour
	next, ok := d.watch(o.now(), 1, &limit)
	if left := next - o.now(); !ok || workers.rounds > 0 || next != limit || left < 59*time.Minute || left > 61*time.Minute {
		t.Fatalf("after a stall of an hour: %v, %v more; %d rounds ended", ok, left, workers.rounds)
	}
	if again, ok := d.watch(o.now(), 1, &limit); !ok || again != next || workers.rounds > 0 {
		t.Errorf("before the new limit: %v, %v; %d rounds ended", again, ok, workers.rounds)
	}
	limit = o.now() - time.Hour
	if _, ok := d.watch(o.now(), 1, &limit); ok || workers.rounds != 1 {
		t.Errorf("at the new limit: %v; %d rounds ended", ok, workers.rounds)
	}
}

// A device that has become so slow that every round is an overrun is known to be slow once
// a few of them have ended. While they run, and if they never end, nothing is learned. Queries
// that run back to back teach what one of them takes, in overruns and in other rounds.
func TestOverrunsTeach(t *testing.T) {
	const ms = time.Millisecond
	solo, err := predictor.NewSolo(1)
	if err == nil {
		err = solo.SetOperators(0, 1, 0, []int64{int64(10 * ms)})
	}
	if err != nil {
		t.Fatal(err)
	}
	k := &kind{solo: solo, predictor: predictor.New(solo)}
	l := &loop{env: &env{mail: newMailbox()}, overruns: map[uint64]*predictor.Overrun{}}
	d := &device{kind: k, round: overlap.Round{Queries: [][]models.QueryID{{1, 2}}}}
	overrun := func(round uint64, ended models.Status) time.Duration {
		span := models.Span{Batch: models.BatchID(round), End: 1, Size: 1}
		o := executor.Outcome{Round: round, Took: 40 * ms, Spans: []executor.SpanOutcome{{SpanOutcome: models.SpanOutcome{Span: span, Status: models.SpanOverrun}}}}
		l.learn(d, &o)
		l.learnLate(d, round, models.SpanOutcome{Span: span, Status: ended, Reached: 1})
		known, _ := solo.Span(span)
		return known
	}
	for round := range uint64(8) {
		if known := overrun(round+1, models.SpanCrashed); known != 10*ms {
			t.Fatalf("after a span that never ended its like take %v", known)
		}
	}
	known := time.Duration(0)
	for round := range uint64(8) {
		known = overrun(round+10, models.SpanDone)
	}
	if known < 16*ms || len(l.overruns) > 0 {
		t.Errorf("after eight rounds of two that took more than 40 ms one takes %v; %d are remembered", known, len(l.overruns))
	}
	for round := range uint64(16) {
		span := models.SpanOutcome{Span: models.Span{Batch: models.BatchID(round), End: 1, Size: 1}, Reached: 1, Took: 10 * ms}
		l.learn(d, &executor.Outcome{Round: round, Took: 10 * ms, Spans: []executor.SpanOutcome{{SpanOutcome: span}}})
		known, _ = solo.Span(span.Span)
	}
	if known < 4*ms || known > 6*ms {
		t.Errorf("after rounds of two that took 10 ms one takes %v", known)
	}
}
