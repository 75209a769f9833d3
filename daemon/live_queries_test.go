package daemon

import (
	"encoding/json"
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
	b.ask(func(*loop) {})
	return b.timeline.ReadQueries(0).Queries
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
	if err := answerOf(t, b, c); err != nil {
		t.Fatal(err)
	}
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

func TestQueriesRoute(t *testing.T) {
	s := serve(t, testLimits())
	s.timeline.Ended(0, &timeline.Query{ID: 5, Result: "finished"})
	page := func(path string) (p timeline.QueryPage) {
		t.Helper()
		a := s.get(path)
		if err := json.Unmarshal(a.body, &p); err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return p
	}
	if p := page("/overlapd/queries"); len(p.Queries) != 0 || p.Next != 1 {
		t.Errorf("%+v", p)
	}
	if p := page("/overlapd/queries?since=0&instance=0"); len(p.Queries) != 1 || p.Queries[0].ID != 5 || p.Queries[0].Service != "simple" {
		t.Errorf("%+v", p)
	}
	for _, bad := range []string{"since=", "since=-1", "instance=1", "instance=x"} {
		if a := s.get("/overlapd/queries?" + bad); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
	s.live()
}
