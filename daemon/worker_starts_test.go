package daemon

import (
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// The loop counts the starts of workers itself: a scrape that comes while a
// service is taken away or replaced finds no worker to ask, and the count must
// not go backward.
func TestRestartsDoNotGoBackward(t *testing.T) {
	r := newReloadRig(t, 1)
	restarts := func() uint64 {
		t.Helper()
		s, _ := r.backend.FullStatus()
		if len(s.Services) != 1 {
			t.Fatalf("%d services", len(s.Services))
		}
		return s.Services[0].Restarts
	}
	start := func(id int) {
		r.workers.Tell(executor.Event{Kind: executor.WorkerStarting, Service: models.ServiceID(id)})
	}
	start(0)
	r.sync()
	if n := restarts(); n != 0 {
		t.Errorf("%d restarts of the first worker", n)
	}
	start(0)
	start(0)
	r.sync()
	if n := restarts(); n != 2 {
		t.Errorf("%d restarts, want 2", n)
	}
	r.begin(func(c *config.Config) { c.Services[0].Threads = 7 })
	id := r.joins()
	start(id)
	r.workers.Revive(id, fakeworkers.Operators)
	r.end()
	if n := restarts(); n != 2 {
		t.Errorf("%d restarts after it was replaced, want 2", n)
	}
	start(id)
	r.sync()
	if n := restarts(); n != 3 {
		t.Errorf("%d restarts, want 3", n)
	}
}
