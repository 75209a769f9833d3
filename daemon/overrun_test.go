package daemon

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// A service goes when no worker runs any more what was measured of it.
func TestMeasuredOverrunKeepsItsService(t *testing.T) {
	r := startRig(t, rigOptions{services: 2})
	rr := &reloadRig{rig: r, result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
	r.workers.Be(fakeworkers.Endless, true)
	r.workers.Be(fakeworkers.Deaf, true)
	_, spans := r.workers.AwaitRound()
	id := spans[0].Service
	call := mustSubmit(t, r.backend, 1-int(id)) // for which the round has no time
	r.workers.AwaitApart(len(spans))
	name := r.Config().Services[id].Name
	rr.begin(func(c *config.Config) {
		c.Services = slices.DeleteFunc(c.Services, func(s config.Service) bool { return s.Name == name })
	})
	rr.until("it takes no requests", func() bool { return r.backend.Service([]byte(name)) == nil })
	r.sync()
	if r.workers.Arena(id) == nil {
		t.Error("it is removed while its worker reads inputs that were measured with")
	}
	for range spans {
		r.workers.EndApart(models.SpanStopped)
	}
	r.workers.Await()
	r.workers.End(models.SpanDone)
	isServed(t, r.backend, call)
	rr.end()
	rr.until("it is gone", func() bool { return r.workers.Arena(id) == nil })
}
