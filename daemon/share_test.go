package daemon

import (
	"slices"
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
	}
	if one, share := of("abacus", 1); one || share != "1 threads" {
		t.Errorf("abacus with one thread: for one thread %t, share %q", one, share)
	}
	if two, share := of("overlap", 1); !two || share != "1 threads, or one beside others on 2 cores" {
		t.Errorf("overlap with one thread, of which two run at once: %t, share %q", two, share)
	}
	if one, share := of("edf", 0); one || share != "2 threads" {
		t.Errorf("edf: for one thread %t, share %q", one, share)
	}
}

// The CPU of a machine with several NUMA nodes is a device for each, unless the configuration names
// devices, or batches have no shares of one.
func TestDeviceForEachNode(t *testing.T) {
	nodes := [][]int{{0, 1}, {2, 3}}
	c := config.Default()
	c.Device = config.DeviceCPU
	if got := onNodes(c, nodes).Devices; len(got) != 2 || got[1].Name != "node1" || got[1].Cores != "2,3" || !slices.Equal(got[1].CPUs(), nodes[1]) {
		t.Errorf("devices %+v", got)
	}
	for name, change := range map[string]func(*config.Config){
		"a GPU may be used":    func(c *config.Config) { c.Device = config.DeviceAuto },
		"another policy":       func(c *config.Config) { c.Policy = "edf" },
		"devices of their own": func(c *config.Config) { c.Devices = config.Pool{{Name: "one", Kind: config.DeviceCPU}} },
	} {
		other := c
		change(&other)
		if got := onNodes(other, nodes).Devices; len(got) != len(other.Devices) {
			t.Errorf("%s: devices %+v", name, got)
		}
	}
	if got := onNodes(c, nodes[:1]).Devices; len(got) > 0 {
		t.Errorf("of one node: %+v", got)
	}
}
