package loop

import (
	"net/http"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
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
	o := newMailbox()
	limit := limit{until: o.now() - time.Hour}
	next, ok := limit.watch(o.now(), 1, workers)
	if left := next - o.now(); !ok || workers.rounds > 0 || next != limit.until || left < 59*time.Minute || left > 61*time.Minute {
		t.Fatalf("after a stall of an hour: %v, %v more; %d rounds ended", ok, left, workers.rounds)
	}
	if again, ok := limit.watch(o.now(), 1, workers); !ok || again != next || workers.rounds > 0 {
		t.Errorf("before the new limit: %v, %v; %d rounds ended", again, ok, workers.rounds)
	}
	limit.until = o.now() - time.Hour
	if _, ok := limit.watch(o.now(), 1, workers); ok || workers.rounds != 1 {
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
	d, run := &device{kind: k}, &running{round: overlap.Round{Queries: [][]models.QueryID{{1, 2}}}}
	overrun := func(round uint64, ended models.Status) time.Duration {
		span := models.Span{Batch: models.BatchID(round), End: 1, Size: 1}
		o := executor.Outcome{Round: round, Took: 40 * ms, Spans: []executor.SpanOutcome{{SpanOutcome: models.SpanOutcome{Span: span, Status: models.SpanOverrun}}}}
		l.learn(d, run, &o)
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
		l.learn(d, run, &executor.Outcome{Round: round, Took: 10 * ms, Spans: []executor.SpanOutcome{{SpanOutcome: span}}})
		known, _ = solo.Span(span.Span)
	}
	if known < 4*ms || known > 6*ms {
		t.Errorf("after rounds of two that took 10 ms one takes %v", known)
	}
}

// A span that does not end keeps no other service waiting. Its query is answered
// at its deadline, and the memory of the query stays until the worker is done
// with it.
func TestOverrunLeavesTheDeviceToOthers(t *testing.T) {
	b, f := startLoop(t, 2, func(c *config.Config) { c.Services[0].Target = 2 * time.Second })
	f.Be(fakeworkers.Endless, true)
	slow := mustSubmit(t, b, 0)
	f.AwaitApart(1)
	batch := f.Sent()[0][0].Batch
	for range 3 {
		quick := mustSubmit(t, b, 1)
		for f.Await().Service != 1 {
			time.Sleep(time.Millisecond)
		}
		f.End(models.SpanDone)
		isServed(t, b, quick)
	}
	wantError(t, answerOf(t, b, slow), 503, "deadline_passed")
	b.Ask(func() {})
	if f.Arena(0).Used() == 0 || !f.Abandoned(batch) {
		t.Errorf("memory in use: %d bytes; its batch was abandoned: %v", f.Arena(0).Used(), f.Abandoned(batch))
	}
	f.EndApart(models.SpanStopped)
	b.Ask(func() {})
	again := mustSubmit(t, b, 0)
	f.Await()
	f.End(models.SpanDone)
	isServed(t, b, again)
}

// overrun starts a loop of two services and a query of the first, whose span does not end.
func overrun(t *testing.T) (*rig, *fakeworkers.Workers, *query.Call) {
	b, f := startLoop(t, 2, func(c *config.Config) { c.Services[1].Target = 2 * time.Second })
	f.Be(fakeworkers.Endless, true)
	slow := mustSubmit(t, b, 0)
	f.AwaitApart(1)
	return b, f, slow
}

// A span that was set apart and ends before the deadline of its query is answered
// with its outputs.
func TestOverrunInTime(t *testing.T) {
	b, f, slow := overrun(t)
	f.EndApart(models.SpanDone)
	isServed(t, b, slow)
}

// A client that leaves while its span does not end is answered at once.
func TestOverrunIsCancelled(t *testing.T) {
	b, f, slow := overrun(t)
	batch := f.Sent()[0][0].Batch
	slow.Service.Backend.Cancel(slow)
	if err := answerOf(t, b, slow); err == nil || !f.Abandoned(batch) {
		t.Errorf("%v; its batch was abandoned: %v", err, f.Abandoned(batch))
	}
	f.EndApart(models.SpanStopped)
	b.Ask(func() {})
}

// A span that does not end on one device keeps nobody waiting on the other: its service
// runs there, too.
func TestPoolWithAnOverrun(t *testing.T) {
	r := newRig(t, rigOptions{services: 1, devices: 2, change: func(c *config.Config) {
		c.Services[0].Target = 2 * time.Second
	}})
	for _, f := range r.pool {
		f.Be(fakeworkers.Endless, true)
	}
	slow := mustSubmit(t, r, 0)
	r.workers.AwaitApart(1)
	for range 3 {
		quick := mustSubmit(t, r, 0)
		r.pool[1].Await()
		r.pool[1].End(models.SpanDone)
		isServed(t, r, quick)
	}
	slow.Service.Backend.Cancel(slow)
	if err := answerOf(t, r, slow); err == nil {
		t.Error("a client that left has outputs")
	}
	r.workers.EndApart(models.SpanStopped)
	r.sync()
}

// A query is stopped where it runs when its client leaves, and what drains is answered
// from every device.
func TestPoolStopsAndDrains(t *testing.T) {
	r := newRig(t, rigOptions{services: 1, devices: 2})
	first, second := mustSubmit(t, r, 0), mustSubmit(t, r, 0)
	r.pool[0].Await()
	r.pool[1].Await()
	second.Service.Backend.Cancel(second)
	wantError(t, answerOf(t, r, second), http.StatusServiceUnavailable, "cancelled")
	if r.pool[0].Stops() != 0 || r.pool[1].Stops() != 1 {
		t.Errorf("%d and %d spans were stopped", r.pool[0].Stops(), r.pool[1].Stops())
	}
	r.Drain()
	r.workers.End(models.SpanDone)
	isServed(t, r, first)
}
