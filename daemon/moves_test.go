package daemon

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning"
)

// carrier moves batches between the fake workers of a rig when the test says so.
type carrier struct {
	t  *testing.T
	mu struct {
		sync.Mutex
		open []*fakeMove
	}
}

// fakeMove is a batch on its way.
type fakeMove struct {
	number   uint64
	from, to *fakeWorkers
	span     models.Span
}

// move is [loop.Options.Move].
func (c *carrier) move(number uint64, from, to loop.Workers, r executor.SpanRequest, _ time.Duration) error {
	m := &fakeMove{number: number, from: from.(*fakeWorkers), to: to.(*fakeWorkers), span: r.Span}
	ids := m.from.queriesOf(r.Span)
	if len(r.Queries) != len(ids) {
		c.t.Errorf("batch %d moves with %d queries and has %v", r.Span.Batch, len(r.Queries), ids)
	}
	for i := range r.Queries {
		if r.Queries[i].ID != ids[i] || len(r.Queries[i].Inputs) == 0 {
			c.t.Errorf("batch %d moves with query %d in the place of %d", r.Span.Batch, r.Queries[i].ID, ids[i])
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.open = append(c.mu.open, m)
	return nil
}

// queriesOf returns the queries of a batch that its worker holds where a span starts.
func (f *fakeWorkers) queriesOf(s models.Span) []models.QueryID {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.mu.workers[s.Service].batches[s.Batch]
	if b == nil || b.next != s.Start {
		f.t.Errorf("%v moves, its worker holds %+v", s, b)
		return nil
	}
	return b.queries
}

// await returns the batch that moves, when one does.
func (c *carrier) await() *fakeMove {
	c.t.Helper()
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		if len(c.mu.open) > 0 {
			m := c.mu.open[0]
			c.mu.open = c.mu.open[1:]
			c.mu.Unlock()
			return m
		}
		c.mu.Unlock()
	}
	c.t.Fatal("no batch moves")
	return nil
}

// carry lands all batches until it is told to stop.
func (c *carrier) carry() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
			c.mu.Lock()
			open := c.mu.open
			c.mu.open = nil
			c.mu.Unlock()
			for _, m := range open {
				m.end()
			}
		}
	}()
	return func() { close(over); <-ended }
}

// end lands a batch, or loses it where a worker that it needs is gone.
func (m *fakeMove) end() {
	m.from.mu.Lock()
	b := m.from.mu.workers[m.span.Service].batches[m.span.Batch]
	delete(m.from.mu.workers[m.span.Service].batches, m.span.Batch)
	m.from.mu.Unlock()
	s := executor.SpanOutcome{SpanOutcome: models.SpanOutcome{Span: m.span, Status: models.SpanDone, Reached: m.span.Start}}
	m.to.mu.Lock()
	if w := &m.to.mu.workers[m.span.Service]; b == nil || !w.ready {
		s.Status, s.Err = models.SpanLost, executor.ErrExited
	} else {
		w.batches[m.span.Batch] = b
	}
	m.to.mu.Unlock()
	m.from.out <- executor.Outcome{Round: m.number, Device: m.from.index, Moved: true, Took: time.Millisecond, Spans: []executor.SpanOutcome{s}}
}

// planned has a service start on one device and end on another.
func planned(first, last string) *planning.Service {
	return &planning.Service{Name: "s0", Operators: fakeOperators, Devices: []string{first, last}, Pipelines: []planning.Pipeline{{
		Batch: 1, Stages: []planning.Stage{{End: 2, Devices: []string{first}, Share: 1}, {Start: 2, End: fakeOperators, Devices: []string{last}, Share: 1}},
	}}}
}

// startPipeline starts a rig of some devices whose service starts on d0 and ends on d1. Its
// rounds end at once.
func startPipeline(t *testing.T, devices int) (*reloadRig, *carrier) {
	c := &carrier{t: t}
	r := &reloadRig{result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.rig = startRig(t, rigOptions{services: 1, devices: devices, device: &calm, move: c.move, change: func(c *config.Config) {
		c.Policy = "edf"
		c.Services[0].Planned, c.Services[0].On = planned("d0", "d1"), []string{"d0", "d1"}
	}})
	return r, c
}

// A batch continues on the next device of its pipeline, and the timeline shows where it
// ran.
func TestBatchMoves(t *testing.T) {
	r, c := startPipeline(t, 2)
	call := mustSubmit(t, r.backend, 0)
	m := c.await()
	if m.from.index != 0 || m.to.index != 1 || m.span.Start != 2 || m.span.End != fakeOperators {
		t.Errorf("%+v moves from %d to %d", m.span, m.from.index, m.to.index)
	}
	m.end()
	isServed(t, r.backend, call)
	q := r.backend.Timeline().ReadQueries(0).Queries
	if len(q) != 1 || !slices.Equal(q[0].Devices, []string{"d0", "d1"}) {
		t.Errorf("queries %+v", q)
	}
	o, _ := r.backend.FullStatus()
	if s := &o.Services[0]; s.Plan != "pipelines: 1" || s.Moves != 1 || s.MovesLost != 0 {
		t.Errorf("%q, %d moves, %d lost", s.Plan, s.Moves, s.MovesLost)
	}
	tells(t, scrape(t, r.Daemon), `overlapd_moves_total{service="s0"} 1`, `overlapd_move_seconds_count 1`)
	rounds := r.backend.Timeline().Read(timeline.Latest, timeline.PageRounds, nil).Rounds
	if len(rounds) != 2 || rounds[0].Device != "d0" || rounds[1].Device != "d1" || rounds[1].Spans[0].Start != 2 {
		t.Errorf("rounds %+v", rounds)
	}
}

// Whenever a worker dies, the query is answered all the same.
func TestWorkerDiesAroundAMove(t *testing.T) {
	for _, of := range []int{0, 1} {
		for _, at := range []string{"while it moves, known at once", "while it moves, known later", "when it has landed"} {
			t.Run(fmt.Sprintf("of device %d %s", of, at), func(t *testing.T) {
				r, c := startPipeline(t, 2)
				call := mustSubmit(t, r.backend, 0)
				m := c.await()
				switch at {
				case "while it moves, known at once":
					r.pool[of].kill(0)
					r.sync()
					m.end()
				case "while it moves, known later":
					r.pool[of].hold()
					r.pool[of].kill(0)
					m.end()
					r.sync()
					r.pool[of].letGo()
				default:
					r.pool[1].runsOn(nil)
					m.end()
					r.pool[1].await()
					r.pool[of].kill(0)
					r.pool[1].runsOn(&calm)
				}
				r.sync()
				r.pool[of].revive(0, fakeOperators)
				defer c.carry()() // it may move again
				if err := answerOf(t, r.backend, call); err != nil {
					t.Errorf("%+v", err)
				}
			})
		}
	}
}

// A client that leaves while its batch moves is rid of it when it has landed, and nothing of
// it is left.
func TestClientLeavesWhileABatchMoves(t *testing.T) {
	r, c := startPipeline(t, 2)
	call := mustSubmit(t, r.backend, 0)
	m := c.await()
	call.Service.Backend.Cancel(call)
	r.sync()
	m.end()
	wantError(t, answerOf(t, r.backend, call), 503, query.ReasonCancelled)
	for i, f := range r.pool {
		if n := f.held(); n != 0 {
			t.Errorf("device %d holds %d batches", i, n)
		}
	}
}

// A stopping daemon answers the query of a batch that is moving if the batch arrives, and
// in any case when the drain timeout has passed.
func TestStopWhileABatchMoves(t *testing.T) {
	for _, lands := range []bool{true, false} {
		r, c := startPipeline(t, 2)
		call := mustSubmit(t, r.backend, 0)
		m := c.await()
		r.backend.Drain()
		r.sync()
		if lands {
			m.end()
			if err := answerOf(t, r.backend, call); err != nil {
				t.Errorf("%+v", err)
			}
			continue
		}
		r.backend.GiveUp()
		if err := answerOf(t, r.backend, call); err == nil || err.Reason != query.ErrDraining.Reason {
			t.Errorf("%+v", err)
		}
		m.end() // as an executor does that is closed
	}
}

// A reload takes other pipelines, or none, while a batch moves: that keeps its way, and the
// next takes the new one. What leaves a device does so when no batch can come there.
func TestReloadWhileABatchMoves(t *testing.T) {
	for name, tt := range map[string]struct {
		next *planning.Service
		on   []string
		ends int // device of the next query, -1 if it does not move
	}{
		"other pipelines": {planned("d0", "d2"), []string{"d0", "d2"}, 2},
		"none":            {nil, []string{"d0", "d1"}, -1},
		"one device less": {nil, []string{"d0"}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := startPipeline(t, 3)
			call := mustSubmit(t, r.backend, 0)
			m := c.await()
			r.begin(func(c *config.Config) {
				c.Services[0].Planned, c.Services[0].On, c.Services[0].Target = tt.next, tt.on, 200*time.Millisecond
			})
			if tt.ends == 2 {
				r.until("a worker on the new device", func() bool { return len(r.pool[2].news()) == 1 })
				if o, _ := r.backend.FullStatus(); o.Services[0].Plan != "waiting for workers that it needs" {
					t.Errorf("the plan is %q", o.Services[0].Plan)
				}
				r.pool[2].revive(0, fakeOperators)
			}
			if done := r.end(); len(done.Failed) > 0 || len(done.Replaced) > 0 {
				t.Fatalf("%+v", done)
			}
			m.end()
			if err := answerOf(t, r.backend, call); err != nil {
				t.Fatalf("the query that was on its way: %+v", err)
			}
			next := mustSubmit(t, r.backend, 0)
			if tt.ends >= 0 {
				m = c.await()
				if m.to.index != tt.ends {
					t.Errorf("it moves to device %d", m.to.index)
				}
				m.end()
			}
			if err := answerOf(t, r.backend, next); err != nil {
				t.Fatalf("the next: %+v", err)
			}
			r.until("the workers are where the plan says", func() bool {
				o, _ := r.backend.FullStatus()
				return len(o.Services[0].Replicas) == len(tt.on)
			})
		})
	}
}

// A plan for another model is not followed: the service serves without it and says why, and a
// reload to such a plan fails and changes nothing.
func TestPlanForAnotherModel(t *testing.T) {
	r, c := startPipeline(t, 2)
	done := r.reload(func(c *config.Config) {
		other := planned("d0", "d1")
		other.Operators, other.Pipelines[0].Stages[1].End = 9, 9
		c.Services[0].Planned = other
	})
	says(t, done.Failed["s0"], "service s0 was planned with 9 operators, but its model has 4", "overlapd plan pipeline")
	call := mustSubmit(t, r.backend, 0)
	c.await().end()
	if err := answerOf(t, r.backend, call); err != nil {
		t.Errorf("%+v", err)
	}

	r.rig = startRig(t, rigOptions{services: 1, devices: 2, device: &calm, move: c.move, change: func(c *config.Config) {
		c.Policy = "edf"
		c.Services[0].Planned = planned("d0", "d1")
		c.Services[0].Planned.Hash = "another"
	}})
	r.serves()
	if o, _ := r.backend.FullStatus(); !strings.HasPrefix(o.Services[0].Plan, "not followed: ") || !strings.Contains(o.Services[0].Plan, "was planned with the model another") {
		t.Errorf("%q", o.Services[0].Plan)
	}
	says(t, r.log.String(), "plan not followed")
}
