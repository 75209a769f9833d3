package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// When MPS is given up, all services are, those that load for the first time
// among them, and none can be added before it is back.
func TestServicesWithoutMPS(t *testing.T) {
	r := newReloadRig(t, 1)
	r.begin(func(c *config.Config) { c.Services = append(c.Services, added("new")) })
	r.joins()
	r.backend.LoseWorkers(0, errors.New(`MPS is given up: too often; set mode = "off"`))
	if done := r.end(); !strings.Contains(done.Failed["new"], "MPS is given up") {
		t.Errorf("%+v", done)
	}
	if !r.backend.Service([]byte("s0")).GivenUp.Load() {
		t.Error("the service that served is not given up")
	}
	add := func(c *config.Config) { c.Services = append(c.Services, added("newer")) }
	if done := r.reload(add); !strings.Contains(done.Failed["newer"], `mode = "off"`) {
		t.Errorf("%+v", done)
	}
	r.backend.LoseWorkers(0, nil)
	r.begin(add)
	r.workers.Revive(r.joins(), fakeworkers.Operators)
	r.workers.Revive(r.joins(), fakeworkers.Operators) // of s0, which the reload tries again
	if done := r.end(); done.Failed["newer"] != "" {
		t.Errorf("MPS is back: %+v", done)
	}
}

func TestShare(t *testing.T) {
	s := config.Service{}
	s.MPS.Percentage = 50
	if got := shareOf(4, &s, false); got != "4 threads" {
		t.Error(got)
	}
	if a, c := shareOf(4, new(config.Service), true), shareOf(4, &s, true); a != "4 threads" || c != "4 threads, MPS 50%" {
		t.Errorf("%q, %q", a, c)
	}
}

func TestGiven(t *testing.T) {
	for _, tt := range []struct{ limit, own, want int64 }{{0, 0, 0}, {5, 0, 5}, {0, 6, 6}, {5, 6, 5}, {6, 5, 5}} {
		u, s := new(poolDevice), new(config.Service)
		u.config.CUDA.MemoryLimit, s.MPS.PinnedMemory = tt.limit, tt.own
		if got := u.given(s); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
