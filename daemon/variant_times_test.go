package daemon

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// A variant that was warmed up while the host was busy is measured again when it is fakeworkers.Calm: it
// would never be selected for a time that is not its own, and so never be corrected.
func TestVariantWarmedUpOnABusyHost(t *testing.T) {
	r := newRig(t, rigOptions{services: 2, change: func(c *config.Config) {
		c.Policy = "edf"
		s := c.Services[0]
		s.Target, s.Model, s.MaxBatch = 100*time.Millisecond, "", 1
		s.Variants = []config.Variant{{Name: "fast", Model: "zoo:tiny_add", Accuracy: 70}, {Name: "good", Model: "zoo:tiny_add", Accuracy: 80}}
		c.Services = []config.Service{s}
	}})
	r.turn()
	quiet, busy := &fakeworkers.Device{Operator: 10 * time.Millisecond}, &fakeworkers.Device{Operator: time.Second}
	r.workers.RunsOn(quiet)
	r.workers.Revive(0, fakeworkers.Operators)
	r.workers.Hold()
	r.workers.RunsOn(busy)
	r.workers.Revive(1, fakeworkers.Operators)
	r.workers.RunsOn(quiet)
	r.workers.LetGo()
	for begin := time.Now(); ; time.Sleep(time.Second) {
		c := mustSubmit(t, r.backend, 0)
		if err := answerOf(t, r.backend, c); err == nil && c.Reply.Variant == "good" {
			return
		}
		if time.Since(begin) > 3*time.Minute {
			t.Fatalf("the variant that is more accurate and in time is not selected:\n%s", r.log)
		}
	}
}
