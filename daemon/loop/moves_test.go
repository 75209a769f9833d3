package loop

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
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
	from, to Workers
	span     models.Span
	end      func() // lands it, or loses it where a worker that it needs is gone
}

// move is [Options.Move].
func (c *carrier) move(number uint64, from, to Workers, r executor.SpanRequest, _ time.Duration) error {
	ids, end := from.(*fakeworkers.Workers).Move(number, r.Span, to.(*fakeworkers.Workers))
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
	c.mu.open = append(c.mu.open, &fakeMove{from, to, r.Span, end})
	return nil
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

// planned has a service start on one device and end on another.
func planned(first, last string) *planning.Service {
	return &planning.Service{Name: "s0", Operators: fakeworkers.Operators, Devices: []string{first, last}, Pipelines: []planning.Pipeline{{
		Batch: 1, Stages: []planning.Stage{{End: 2, Devices: []string{first}, Share: 1}, {Start: 2, End: fakeworkers.Operators, Devices: []string{last}, Share: 1}},
	}}}
}

// startPipeline starts a rig of some devices whose service goes by a plan. Its rounds end at once.
func startPipeline(t *testing.T, devices int, plan *planning.Service) (*rig, *carrier) {
	c := &carrier{t: t}
	return newRig(t, rigOptions{services: 1, devices: devices, device: &fakeworkers.Calm, move: c.move, change: func(c *config.Config) {
		c.Services[0].Planned, c.Services[0].On = plan, []string{"d0", "d1"}
	}}), c
}

// A batch continues on the next device of its pipeline, and the timeline shows where it
// ran.
func TestBatchMoves(t *testing.T) {
	r, c := startPipeline(t, 2, planned("d0", "d1"))
	call := mustSubmit(t, r, 0)
	m := c.await()
	if m.from != r.pool[0] || m.to != r.pool[1] || m.span.Start != 2 || m.span.End != fakeworkers.Operators {
		t.Errorf("%+v moves between other devices", m.span)
	}
	m.end()
	isServed(t, r, call)
	q := r.Timeline().ReadQueries(0).Queries
	if len(q) != 1 || !slices.Equal(q[0].Devices, []string{"d0", "d1"}) {
		t.Errorf("queries %+v", q)
	}
	o, _ := r.FullStatus()
	if s := &o.Services[0]; s.Plan != "pipelines: 1" || s.Moves != 1 || s.MovesLost != 0 {
		t.Errorf("%q, %d moves, %d lost", s.Plan, s.Moves, s.MovesLost)
	}
	rounds := r.Timeline().Read(timeline.Latest, timeline.PageRounds, nil).Rounds
	if len(rounds) != 2 || rounds[0].Device != "d0" || rounds[1].Device != "d1" || rounds[1].Spans[0].Start != 2 {
		t.Errorf("rounds %+v", rounds)
	}
}

// Whenever a worker dies, the query is answered all the same.
func TestWorkerDiesAroundAMove(t *testing.T) {
	for _, of := range []int{0, 1} {
		for _, at := range []string{"while it moves, known at once", "while it moves, known later", "when it has landed"} {
			t.Run(fmt.Sprintf("of device %d %s", of, at), func(t *testing.T) {
				r, c := startPipeline(t, 2, planned("d0", "d1"))
				call := mustSubmit(t, r, 0)
				m := c.await()
				switch at {
				case "while it moves, known at once":
					r.pool[of].Kill(0)
					r.sync()
					m.end()
				case "while it moves, known later":
					r.pool[of].Hold()
					r.pool[of].Kill(0)
					m.end()
					r.sync()
					r.pool[of].LetGo()
				default:
					r.pool[1].RunsOn(nil)
					m.end()
					r.pool[1].Await()
					r.pool[of].Kill(0)
					r.pool[1].RunsOn(&fakeworkers.Calm)
				}
				r.sync()
				r.pool[of].Revive(0, fakeworkers.Operators)
				defer c.carry()() // it may move again
				if err := answerOf(t, r, call); err != nil {
					t.Errorf("%+v", err)
				}
			})
		}
	}
}

// A client that leaves while its batch moves is rid of it when it has landed, and nothing of
// it is left.
func TestClientLeavesWhileABatchMoves(t *testing.T) {
	r, c := startPipeline(t, 2, planned("d0", "d1"))
	call := mustSubmit(t, r, 0)
	m := c.await()
	call.Service.Backend.Cancel(call)
	r.sync()
	m.end()
	wantError(t, answerOf(t, r, call), 503, query.ReasonCancelled)
	for i, f := range r.pool {
		if n := f.Held(); n != 0 {
			t.Errorf("device %d holds %d batches", i, n)
		}
	}
}

// A stopping daemon answers the query of a batch that is moving if the batch arrives, and
// in any case when the drain timeout has passed.
func TestStopWhileABatchMoves(t *testing.T) {
	for _, lands := range []bool{true, false} {
		r, c := startPipeline(t, 2, planned("d0", "d1"))
		call := mustSubmit(t, r, 0)
		m := c.await()
		r.Drain()
		r.sync()
		if lands {
			m.end()
			if err := answerOf(t, r, call); err != nil {
				t.Errorf("%+v", err)
			}
			continue
		}
		r.GiveUp()
		if err := answerOf(t, r, call); err == nil || err.Reason != query.ErrDraining.Reason {
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
			r, c := startPipeline(t, 3, planned("d0", "d1"))
			call := mustSubmit(t, r, 0)
			m := c.await()
			next := r.config.Services[0]
			next.Planned, next.On, next.Target = tt.next, tt.on, 200*time.Millisecond
			if err := r.Retarget(&next, r.places(&next)); err != nil {
				t.Fatal(err)
			}
			if tt.ends == 2 {
				if plan := r.now().Services[0].Plan; plan != "waiting for workers that it needs" {
					t.Errorf("the plan is %q", plan)
				}
				r.pool[2].Revive(0, fakeworkers.Operators)
			}
			r.sync()
			m.end()
			if err := answerOf(t, r, call); err != nil {
				t.Fatalf("the query that was on its way: %+v", err)
			}
			later := mustSubmit(t, r, 0)
			if tt.ends >= 0 {
				m = c.await()
				if m.to != r.pool[tt.ends] {
					t.Errorf("it moves to another device than %d", tt.ends)
				}
				m.end()
			}
			if err := answerOf(t, r, later); err != nil {
				t.Fatalf("the next: %+v", err)
			}
			r.until("the workers are where the plan says", func(s *status.Status) bool { return len(s.Services[0].Replicas) == len(tt.on) })
		})
	}
}

// A plan for another model is not followed: the service serves without it and says why, and taking
// such a plan later fails and changes nothing.
func TestPlanForAnotherModel(t *testing.T) {
	r, c := startPipeline(t, 2, planned("d0", "d1"))
	other := r.config.Services[0]
	other.Planned = planned("d0", "d1")
	other.Planned.Operators, other.Planned.Pipelines[0].Stages[1].End = 9, 9
	err := r.Retarget(&other, r.places(&other))
	if err == nil || !strings.Contains(err.Error(), "service s0 was planned with 9 operators, but its model has 4") || !strings.Contains(err.Error(), "overlapd plan pipeline") {
		t.Errorf("a plan for another model: %v", err)
	}
	call := mustSubmit(t, r, 0)
	c.await().end()
	if err := answerOf(t, r, call); err != nil {
		t.Errorf("%+v", err)
	}

	foreign := planned("d0", "d1")
	foreign.Hash = "another"
	r, _ = startPipeline(t, 2, foreign)
	isServed(t, r, mustSubmit(t, r, 0))
	if plan := r.now().Services[0].Plan; !strings.HasPrefix(plan, "not followed: ") || !strings.Contains(plan, "was planned with the model another") {
		t.Errorf("%q", plan)
	}
}
