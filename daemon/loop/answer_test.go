package loop

import (
	"errors"
	"fmt"
	"net/http"
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
		if err := s.Loaded(query.Info{Inputs: []models.TensorSpec{{Name: "x", Type: models.Tensor(models.Int8, models.Dim{Value: 1})}}}); err != nil {
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

func TestReplyOfAFinishedQuery(t *testing.T) {
	p := &pending{call: &query.Call{}}
	p.outputs.Outputs = []executor.Output{
		{Type: models.Int8, Shape: []int64{2}, Data: []byte{1, 2}},
		{Type: models.Bool, Shape: []int64{}, Data: []byte{1}},
	}
	for range 2 { // the memory of a reply is used again
		r := new(calls).reply(p, &overlap.Answer{Result: overlap.Finished, Queue: 1, Run: 2})
		if r.Err != nil || len(r.Outputs) != 2 || r.Outputs[0].Data[1] != 2 || r.Outputs[1].Type != models.Bool ||
			r.Queue != 1 || r.Compute != 2 {
			t.Errorf("%+v", r)
		}
	}
}

func TestRefusalOfTheScheduler(t *testing.T) {
	for _, tt := range []struct {
		err    error
		reason string
		status int
	}{
		{overlap.ErrQueueFull, query.ReasonQueueFull, 503},
		{overlap.ErrDraining, query.ReasonDraining, 503},
		{overlap.ErrExpired, query.ReasonDeadline, 503},
		{errors.New("a defect"), query.ReasonInternal, 500},
	} {
		if got := refusal(fmt.Errorf("overlap: %w", tt.err)); got.Reason != tt.reason || got.Status != tt.status {
			t.Errorf("%v: %+v", tt.err, got)
		}
	}
}

// batches is a scheduler that knows batches of rounds that run, and overruns with how many
// queries they began.
type batches struct {
	scheduler
	runs, overran map[models.BatchID][]models.QueryID
	began         map[models.BatchID]int
}

func (b batches) Members(id models.BatchID) []models.QueryID { return b.runs[id] }
func (b batches) Unanswered(id models.BatchID) (waiting []models.QueryID, all bool) {
	return b.overran[id], len(b.overran[id]) == b.began[id]
}

// Only a query that was all of its batch is to blame for what became of
// that, also where the others have been answered before.
func TestBlame(t *testing.T) {
	cs := &calls{core: &core{scheduler: batches{
		runs:    map[models.BatchID][]models.QueryID{1: {1, 2}, 2: {2}, 3: {1}, 4: {7}},
		overran: map[models.BatchID][]models.QueryID{5: {1, 2}, 6: {2}, 7: {1}},
		began:   map[models.BatchID]int{5: 2, 6: 2, 7: 1},
	}}, pending: map[models.QueryID]*pending{1: {}, 2: {}}}
	l := &loop{core: cs.core, calls: cs}
	for batch, want := range map[models.BatchID][2]bool{2: {false, true}, 3: {true, false}, 7: {true, false}, 1: {}, 4: {}, 5: {}, 6: {}} {
		cs.pending[1].failure, cs.pending[2].failure = nil, nil
		span := executor.SpanOutcome{SpanOutcome: models.SpanOutcome{Span: models.Span{Batch: batch}}}
		cs.blame(l.members(&span), executor.ErrExited)
		if got := [2]bool{cs.pending[1].failure != nil, cs.pending[2].failure != nil}; got != want {
			t.Errorf("batch %d: %v", batch, got)
		}
	}
}
