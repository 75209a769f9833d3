package daemon

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// A group that is measured while a worker begins to load ends and is run again,
// and nothing is measured until the worker is loaded or lost.
func TestLoadingAndMeasuring(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	r.workers.Await() // a group is measured
	r.workers.Tell(executor.Event{Kind: executor.WorkerProgress, Service: 1, Phase: "load"})
	r.sync()
	r.workers.End(models.SpanDone)
	rounds := len(r.workers.Sent())
	time.Sleep(learning.Quiet + learning.Quiet/2)
	if more := len(r.workers.Sent()) - rounds; more > 0 || r.predictor().Measuring == nil {
		t.Errorf("%d groups are measured while a worker loads", more)
	}
	r.workers.Tell(executor.Event{Kind: executor.WorkerLost, Service: 1, Err: executor.ErrExited})
	r.workers.Tell(executor.Event{Kind: executor.WorkerStopped, Service: 1})
	if o, ok := r.backend.FullStatus(); !ok || len(o.Loading) > 0 {
		t.Error("a lost worker loads")
	}
}

// A service that is added is shown while its worker loads, before anybody can
// ask it, with its progress among the steps of the reload.
func TestLoadingIsShown(t *testing.T) {
	r := newReloadRig(t, 1)
	r.begin(func(c *config.Config) { c.Services = append(c.Services, added("new")) })
	id := r.joins()
	r.workers.Tell(executor.Event{Kind: executor.WorkerProgress, Service: models.ServiceID(id), Phase: "load", Done: 3, Total: 9})
	r.sync()
	o, _ := r.backend.FullStatus()
	if len(o.Loading) != 1 || o.Loading[0].Service != "new" || o.Loading[0].Done != 3 || o.Loading[0].Total != 9 {
		t.Errorf("%+v", o.Loading)
	}
	r.workers.Revive(id, fakeworkers.Operators)
	r.end()
	if o, _ := r.backend.FullStatus(); len(o.Loading) != 0 {
		t.Errorf("it serves: %+v", o.Loading)
	}
	close(r.steps)
	for step := range r.steps {
		if step == (config.Step{Service: "new", State: config.StepLoading, Done: 3, Total: 9}) {
			return
		}
	}
	t.Error("the reload shows nothing of the steps")
}
