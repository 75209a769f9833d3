package daemon

import (
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

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
