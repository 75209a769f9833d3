package daemon

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// versionsRig is a rig with the services s0, of which there is a version 1 too, and s1.
func versionsRig(t *testing.T) *reloadRig {
	return &reloadRig{rig: startRig(t, rigOptions{services: 3, change: func(c *config.Config) {
		c.Policy = "edf"
		c.Services[0].Version = 2
		c.Services[2].Name, c.Services[2].Version = "s0:1", 1
	}}), result: make(chan reloaded, 1), steps: make(chan config.Step, 1000)}
}

// When the highest version goes, the next one answers all the time: first under its own name,
// then under the plain one.
func TestHighestVersionGoes(t *testing.T) {
	r := versionsRig(t)
	find := func() *query.Service {
		t.Helper()
		q := &query.Server{Host: r.backend}
		s, err := q.Find([]byte("s0"), []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if find().Name != "s0:1" {
		t.Errorf("at first it is %s", find().Name)
	}
	r.begin(func(c *config.Config) {
		c.Services = slices.DeleteFunc(c.Services, func(s config.Service) bool { return s.Name == "s0:1" })
		c.Service("s0").Version, c.Service("s0").Threads = 1, 3 // as if it were another model
	})
	id := r.joins()
	if find().Name != "s0:1" {
		t.Errorf("while it loads it is %s", find().Name)
	}
	r.workers.Revive(id, fakeworkers.Operators)
	done := r.end()
	if find().Name != "s0" || !slices.Equal(done.Removed, []string{"s0:1"}) || !slices.Equal(done.Replaced, []string{"s0"}) || len(done.Failed) > 0 {
		t.Errorf("it is %s after %+v", find().Name, done)
	}
	if got := r.names(); got != "s0 s1" {
		t.Errorf("the services are %s", got)
	}
}
