package daemon

import (
	"net/http"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// over returns the queries that are over, once the loop has handled all that it
// was told.
func over(t *testing.T, b *backend) []timeline.Query {
	t.Helper()
	b.Ask(func() {})
	return b.Timeline().ReadQueries(0).Queries
}

// Each query that ends is remembered, whatever becomes of it.
func TestQueriesThatEnd(t *testing.T) {
	b, f := startLoop(t, 1, func(c *config.Config) { c.Services[0].QueueLimit = 1 })
	c := mustSubmit(t, b, 0)
	f.await()
	waiting := mustSubmit(t, b, 0)
	refused := mustSubmit(t, b, 0)
	wantError(t, answerOf(t, b, refused), http.StatusServiceUnavailable, query.ReasonQueueFull)
	f.end(models.SpanDone)
	isServed(t, b, c)
	f.await()
	f.end(models.SpanFailed)
	answerOf(t, b, waiting)
	list := over(t, b)
	if len(list) != 3 {
		t.Fatalf("%+v", list)
	}
	for i, want := range []struct {
		result, reason string
		ran            bool
	}{{"refused", "queue_full", false}, {"finished", "", true}, {"failed", "model_failed", true}} {
		q := list[i]
		if q.Result != want.result || q.Reason != want.reason || (q.Batch != 0) != want.ran || (q.Started > 0) != want.ran ||
			q.Service != "s0" || q.Size != 1 || q.End < q.Arrival || q.Deadline-q.Arrival != b.Services()[0].QoSTarget {
			t.Errorf("query %d: %+v", i, q)
		}
		if want.ran && (q.Started < q.Arrival || q.Started > q.End) {
			t.Errorf("query %d started out of its time: %+v", i, q)
		}
	}
}

// The loop feeds the timeline: a group with its decision, and how its queries
// ended.
func TestLoopFeedsTheTimeline(t *testing.T) {
	r, first := groupRig(t)
	calls := r.group(first)
	r.workers.end(models.SpanDone)
	isServed(t, r.backend, calls...)
	p := r.backend.Timeline().Read(0, timeline.PageRounds, nil)
	if len(p.Rounds) != 2 || p.Running != nil {
		t.Fatalf("%+v", p)
	}
	g := p.Rounds[1]
	if len(g.Spans) != 2 || len(g.Candidates) != 2 || !g.Planned || g.End <= g.Start || g.Took <= 0 || g.Spans[0].Of != fakeOperators || g.Spans[1].Status != "done" {
		t.Errorf("%+v", g)
	}
	for i, want := range []int{2, 1} {
		if s := p.Services[i]; s.Ended != want || s.P50 <= 0 || s.Missed > want {
			t.Errorf("service %d: %+v", i, s)
		}
	}
}
