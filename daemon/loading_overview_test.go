package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/metrics"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// What a worker has waited for leave adds up from step to step, and is forgotten
// when it is loaded or lost.
func TestWaitingForLeaveAddsUp(t *testing.T) {
	l := &loop{backend: &backend{}, slots: []*slot{{config: ServiceConfig{Name: "a"}}}}
	g := &l.loading
	want := func(now time.Duration, want LoadingOverview) {
		t.Helper()
		want.Service = "a"
		if got := l.loads(now); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	g.ask(10*time.Second, 0, "read")
	g.count(0, 1, 9)
	want(12*time.Second, LoadingOverview{Phase: "read", Waiting: true, Seconds: 2, Done: 1, Total: 9, LoadSeconds: 2, WaitedSeconds: 2})
	g.grant(13*time.Second, useNone)
	want(15*time.Second, LoadingOverview{Phase: "read", Seconds: 2, Done: 1, Total: 9, LoadSeconds: 5, WaitedSeconds: 3})
	g.ask(16*time.Second, 0, "warm")
	g.count(0, 2, 9)
	want(20*time.Second, LoadingOverview{Phase: "warm", Waiting: true, Seconds: 4, Done: 2, Total: 9, LoadSeconds: 10, WaitedSeconds: 7})
	if told := l.tellLoads(nil, 20*time.Second); len(told) != 1 || told[0] != (metrics.Loading{Service: "a", Waited: 7 * time.Second}) {
		t.Errorf("a scrape is told %+v", told)
	}
	g.end(0)
	if got := l.loads(20 * time.Second); len(got) != 0 || len(l.tellLoads(nil, 0)) != 0 {
		t.Errorf("it is loaded: %+v", got)
	}
	g.ask(30*time.Second, 0, "read")
	want(31*time.Second, LoadingOverview{Phase: "read", Waiting: true, Seconds: 1, LoadSeconds: 1, WaitedSeconds: 1})
}

// A service that is added is told of while it waits for leave, before anybody
// can ask it, and no more once it serves.
func TestLoadingIsShown(t *testing.T) {
	r := newReloadRig(t, 1)
	busy := mustSubmit(t, r.backend, 0)
	r.workers.await()
	r.begin(func(c *Config) { c.Services = append(c.Services, added("new")) })
	id := r.joins()
	r.workers.tell(executor.WorkerAsks{Service: models.ServiceID(id), Phase: "load", Done: 3, Total: 9})
	r.sync()
	o, _ := r.backend.Overview()
	if len(o.Loading) != 1 || o.Loading[0].Service != "new" || !o.Loading[0].Waiting || o.Loading[0].Done != 3 || o.Loading[0].Total != 9 {
		t.Errorf("%+v", o.Loading)
	}
	scrape := metrics.NewExporter(newScraper(r.backend, "test", "edf").snapshot)
	if text, err := scrape.Text(); err != nil || !strings.Contains(string(text), `overlapd_loading_waited_seconds{service="new"}`) {
		t.Errorf("%v\n%s", err, text)
	}
	f := &front{backends: []*backend{r.backend, r.backend}}
	f.publish(nil)
	if all, _ := f.Overview(); len(all.Loading) != 2 {
		t.Errorf("of two instances: %+v", all.Loading)
	}
	r.workers.end(executor.Done)
	if err := answerOf(t, r.backend, busy); err != nil {
		t.Error(err)
	}
	r.workers.revive(id, fakeOperators)
	r.end()
	if o, _ := r.backend.Overview(); len(o.Loading) != 0 {
		t.Errorf("it serves: %+v", o.Loading)
	}
}
