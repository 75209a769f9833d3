package loop

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// Every query that is not finished tells its client why, and whether to come
// again.
func TestFailureSaysWhy(t *testing.T) {
	told := errors.New("the kernel said no")
	for name, tt := range map[string]struct {
		reason  overlap.Reason
		failure error
		unready bool
		status  int
		want    string // reason
		message string
	}{
		"deadline":           {overlap.ReasonDeadlinePassed, nil, false, 503, query.ReasonDeadline, "after 3ms in the queue"},
		"deadline, starting": {overlap.ReasonDeadlinePassed, nil, true, 503, query.ReasonDeadline, "was restarting"},
		"hopeless":           {overlap.ReasonCannotFinish, nil, false, 503, query.ReasonCannotFinish, "could not have finished"},
		"draining":           {overlap.ReasonDraining, nil, false, 503, query.ReasonDraining, "stopping"},
		"closed while run":   {overlap.ReasonWorkerLost, fmt.Errorf("lost: %w", executor.ErrClosed), false, 503, query.ReasonDraining, "stopping"},
		"cancelled":          {overlap.ReasonCancelled, nil, false, 503, query.ReasonCancelled, "disconnected"},
		"worker lost":        {overlap.ReasonWorkerLost, nil, false, 503, query.ReasonWorkerLost, "no time to run the query again"},
		"crashed":            {overlap.ReasonWorkerLost, fmt.Errorf("%w: SIGFPE", executor.ErrExited), false, 500, query.ReasonWorkerLost, "SIGFPE"},
		"no memory":          {overlap.ReasonModelFailed, fmt.Errorf("run: %w", wire.ErrMemory), false, 503, query.ReasonNoMemory, "service s"},
		"no room for output": {overlap.ReasonModelFailed, fmt.Errorf("run: %w", wire.ErrArenaFull), false, 503, query.ReasonNoMemory, "service s"},
		"never any room":     {overlap.ReasonModelFailed, fmt.Errorf("run: %w: %w", wire.ErrTooLarge, wire.ErrMemory), false, 413, query.ReasonTooLarge, "service s"},
		"model failed":       {overlap.ReasonModelFailed, told, false, 500, query.ReasonModelFailed, "the kernel said no"},
		"model, no word":     {overlap.ReasonModelFailed, nil, false, 500, query.ReasonModelFailed, "the model failed"},
	} {
		s := query.NewService(0, "s")
		if err := s.Loaded(query.Info{Inputs: []models.TensorSpec{{Name: "x", Type: models.TensorType(models.Int8, models.Dim{Value: 1})}}}); err != nil {
			t.Fatal(err)
		}
		s.SetReady(!tt.unready)
		p := &pending{call: &query.Call{Service: s}, failure: tt.failure}
		r := new(calls).reply(p, &overlap.Answer{Result: overlap.Dropped, Reason: tt.reason, Queue: 3 * time.Millisecond})
		err := r.Err
		if err == nil || err.Status != tt.status || err.Reason != tt.want || !strings.Contains(err.Message, tt.message) {
			t.Errorf("%s: %+v", name, err)
			continue
		}
		if again := err.RetryAfter > 0; again != (err.Status == http.StatusServiceUnavailable) {
			t.Errorf("%s: status %d, Retry-After %v", name, err.Status, err.RetryAfter)
		}
		if r.Queue != 3*time.Millisecond || len(r.Outputs) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// flat is a predictor for which a batch takes as long as a query.
type flat struct{}

func (flat) Predict(groups []models.Group, estimates []models.Estimate) {
	for i := range groups {
		estimates[i] = models.Estimate{Latency: time.Millisecond, Bound: time.Millisecond}
	}
}

// Only a query that was all of its batch is to blame for what became of
// that, also where the others have been answered before.
func TestBlame(t *testing.T) {
	config := overlap.Config{Policy: "edf", Devices: []overlap.Predictor{flat{}, flat{}}}
	for id := range models.ServiceID(5) {
		config.Services = append(config.Services, models.Service{ID: id, Name: string(rune('a' + id)), Operators: 1, QoSTarget: time.Hour, QueueLimit: 9, MaxBatch: 2})
	}
	s, err := overlap.New(config)
	if err != nil {
		t.Fatal(err)
	}
	cs := &calls{env: &env{mail: newMailbox(), door: s, scheduler: s}, pending: map[models.QueryID]*pending{}}
	step := func(e overlap.Event) {
		t.Helper()
		if err := cs.env.step(e); err != nil {
			t.Fatal(err)
		}
	}
	run := func(service models.ServiceID, ids ...models.QueryID) *overlap.Round {
		t.Helper()
		for _, id := range ids {
			cs.pending[id] = &pending{}
			step(overlap.Event{Kind: overlap.Arrive, Query: models.Query{ID: id, Service: service, Size: 1, Deadline: time.Hour}})
		}
		r := s.Ready(cs.env.now())
		if r.Round == nil || len(r.Round.Queries[0]) != len(ids) {
			t.Fatalf("%v are not one batch: %+v", ids, r.Round)
		}
		return r.Round
	}
	overrun := func(service models.ServiceID, ids ...models.QueryID) models.BatchID {
		t.Helper()
		r := run(service, ids...)
		span := r.Spans[0]
		step(overlap.Event{Kind: overlap.Finish, Outcome: models.Outcome{
			Round: r.Number, Device: r.Device, Spans: []models.SpanOutcome{{Span: span, Status: models.SpanOverrun}},
		}})
		return span.Batch
	}
	blamed := map[models.BatchID][]models.QueryID{
		overrun(0, 1):    {1},
		overrun(1, 2, 3): nil,
		overrun(2, 4, 5): nil, // of which one is answered
		99:               nil,
	}
	step(overlap.Event{Kind: overlap.Cancel, Query: models.Query{ID: 5}})
	s.Ready(cs.env.now())
	blamed[run(3, 6).Spans[0].Batch] = []models.QueryID{6}
	blamed[run(4, 7, 8).Spans[0].Batch] = nil
	for batch, want := range blamed {
		span := models.Span{Batch: batch}
		cs.blame(cs.queriesOf(&span), executor.ErrExited)
		var got []models.QueryID
		for id, p := range cs.pending {
			if p.failure != nil {
				got = append(got, id)
			}
			p.failure = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("batch %d: %v are to blame, want %v", batch, got, want)
		}
	}
}
