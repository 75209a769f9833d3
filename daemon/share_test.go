package daemon

import (
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
)

// A worker is ready for one thread where rounds of several spans share the cores, and what
// was measured there is told from what was measured otherwise.
func TestWorkersShareTheCores(t *testing.T) {
	of := func(policy string, threads int) (oneThread bool, share string) {
		u := &poolDevice{config: config.Default(), cores: 2}
		u.config.Policy, u.config.StateDir = policy, t.TempDir()
		s := config.DefaultService()
		s.Name, s.Model, s.Threads = "a", "a.onnx", threads
		place, err := u.worker(0, &s)
		if err != nil {
			t.Fatal(err)
		}
		return place.Worker.Load.Units == 2, place.Share
	}
	for _, policy := range []string{"overlap", "abacus"} {
		if one, share := of(policy, 0); !one || !strings.HasPrefix(share, "2 threads, or one ") {
			t.Errorf("%s: for one thread %t, share %q", policy, one, share)
		}
		if one, share := of(policy, 1); one || share != "1 threads" {
			t.Errorf("%s with one thread: for one thread %t, share %q", policy, one, share)
		}
	}
	if one, share := of("edf", 0); one || share != "2 threads" {
		t.Errorf("edf: for one thread %t, share %q", one, share)
	}
}
