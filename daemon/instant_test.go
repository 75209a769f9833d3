package daemon

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/segments/wire"
)

// instant is an executor whose rounds are over at once, so that what is measured
// is the loop.
type instant struct {
	out   chan executor.Outcome
	spans [2][]executor.SpanOutcome // of two rounds, used in turn
	turn  int
}

func (f *instant) SetApart(uint64) bool                     { return false }
func (f *instant) Abandon(models.ServiceID, models.BatchID) {}

func (f *instant) Run(round uint64, spans []executor.SpanRequest) error {
	f.turn++
	to := f.spans[f.turn%2][:0]
	o := executor.Outcome{Round: round, Took: time.Microsecond}
	for i := range spans {
		s := executor.SpanOutcome{SpanOutcome: models.SpanOutcome{Span: spans[i].Span, Reached: spans[i].Span.End, Took: time.Microsecond}, Finished: true}
		for _, q := range spans[i].Queries {
			s.Queries = append(s.Queries, executor.QueryOutputs{ID: q.ID})
		}
		to = append(to, s)
	}
	f.spans[f.turn%2], o.Spans = to, to
	f.out <- o
	return nil
}

func (f *instant) Start(context.Context) error { return nil }
func (f *instant) Delivers(_ []*wire.InputArena, outcomes chan executor.Outcome, _ func(executor.Event)) {
	f.out = outcomes
}
func (f *instant) Stop(models.ServiceID, models.BatchID) bool     { return false }
func (f *instant) Release(models.ServiceID, models.BatchID)       {}
func (f *instant) State(models.ServiceID) (executor.State, error) { return executor.State{}, nil }
func (f *instant) Add(executor.ServiceSpec) error                 { return executor.ErrInUse }
func (f *instant) Restart(models.ServiceID) error                 { return executor.ErrUnknownService }
func (f *instant) Close() error                                   { return nil }

func (f *instant) Remove(models.ServiceID) (<-chan struct{}, error) {
	return nil, executor.ErrUnknownService
}

// startInstant starts a backend on it, with services of one operator that are
// ready.
func startInstant(t testing.TB, services int, change func(*config.Config)) *backend {
	t.Helper()
	return startInstantLogged(t, services, change, nil)
}

// startInstantLogged is startInstant with a decision log, unless it is nil.
func startInstantLogged(t testing.TB, services int, change func(*config.Config), log *journal.Writer) *backend {
	t.Helper()
	c := fakeworkers.Config(services, change)
	f := &instant{}
	b := newBackend(t, c, f, log)
	b.Begin()
	for i := range services {
		b.Event(0, executor.Event{Kind: executor.WorkerReady, Service: models.ServiceID(i), PID: i + 1, Info: &wire.Info{
			Inputs:    []models.TensorSpec{spec("X", models.Int32, -1, 16)},
			Outputs:   []models.TensorSpec{spec("Y", models.Int32, -1, 16)},
			Operators: make([]models.Operator, 1), Hash: fmt.Sprint(i), ORTVersion: "0",
			Solo: []wire.Solo{{Size: 1, Nanos: []int64{1000}}, {Size: 4, Nanos: []int64{3000}}},
		}})
	}
	b.Ask(func() {})
	t.Cleanup(func() { b.Close() })
	return b
}

// asker sends one query after another.
type asker struct {
	b *backend
	c *query.Call
}

func newAsker(b *backend, service int) *asker {
	c := query.NewCall(b.Services()[service])
	c.Size = 1
	return &asker{b, c}
}

func (a *asker) ask(t testing.TB) {
	m, err := a.c.Service.Backend.Alloc(a.c.Service, 64)
	if err != nil {
		t.Fatal(err)
	}
	a.c.Memory, a.c.Arrival = m, time.Now()
	if err := a.c.Service.Backend.Submit(a.c); err != nil {
		t.Fatal(err)
	}
	<-a.c.Answered()
	if a.c.Reply.Err != nil {
		t.Fatal(a.c.Reply.Err)
	}
	a.c.Service.Backend.Release(a.c)
}
