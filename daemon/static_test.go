package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
)

// Two services have a share each of one GPU: they are clients of one MPS, with a limit each,
// and when its server dies both start again.
func TestStaticOnGPU(t *testing.T) {
	r := newGPURig(t, "a", "b")
	r.config.Policy = config.Static
	shares := map[string]int{"a": 30, "b": 70}
	for i := range r.config.Services {
		s := &r.config.Services[i]
		s.MPS.Percentage = shares[s.Name]
	}
	if text, err := PlanGPU(r.config, r.opts); err != nil || strings.Count(text, "memory of ") != 1 {
		t.Errorf("the memory of one GPU, shared: %v\n%s", err, text)
	}
	r.start()
	r.eventually("ready", r.Ready)
	if len(r.devices) != 2 || r.devices[0].part != r.devices[1].part || r.devices[0].memory != r.devices[1].memory {
		t.Errorf("the shares are not of one GPU: %+v", r.devices)
	}
	before := r.pids()
	for name, pid := range before {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if want := fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d\x00", shares[name]); err != nil || !bytes.Contains(environment, []byte(want)) {
			t.Errorf("%s: %v, %q is not in %q", name, err, want, environment)
		}
		if status, text := r.ask(http.DefaultClient, name); status != http.StatusOK {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	kill(t, r.servers(0)[0])
	r.eventually("other workers of both", func() bool {
		after := r.pids()
		return r.Ready() && after["a"] != before["a"] && after["b"] != before["b"]
	})
	if diff := cmp.Diff([]string{"a", "b"}, changed(before, r.pids())); diff != "" {
		t.Errorf("restarted workers: %s", diff)
	}
	for name := range shares {
		if status, text := r.ask(http.DefaultClient, name); status != http.StatusOK {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A share of an emulated device is as fast as a share of its profile. It stays what it was
// made as, and a service that comes later has none.
func TestStaticEmulated(t *testing.T) {
	p, err := device.Linear("linear", "first,0.1,0\nsecond,0.1,0\n")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "linear.device.json")
	if err := p.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	c := emulatedConfig(t, func(c *config.Config) {
		c.Policy, c.DeviceProfile = config.Static, path
		c.Services[0].MPS.Percentage, c.Services[1].MPS.Percentage = 20, 50
	})
	d := serveEmulatedOn(t, c, nil)
	for i, want := range []time.Duration{500 * time.Microsecond, 200 * time.Microsecond} {
		whole := models.Group{Spans: []models.Span{{Service: models.ServiceID(i), End: p.Models()[i].Operators, Size: 1}}}
		if got := d.devices[i].emulation.device.Latency(whole); got < want-time.Microsecond || got > want+time.Microsecond {
			t.Errorf("a query of service %d takes %v in its share, want %v", i, got, want)
		}
	}
	if status, text := d.infer(0, 1, 0); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if d.Device() != "emulated: linear, 20 %; emulated: linear, 50 %" {
		t.Errorf("it runs on %s", d.Device())
	}
	next := c
	next.Services = append([]config.Service(nil), c.Services...)
	next.Services[0].MPS.Percentage = 30
	late := c.Services[1]
	late.Name, late.MPS.Percentage = "late", 10
	next.Services = append(next.Services, late)
	done, err := d.Reload(t.Context(), next, nil)
	if err != nil || !strings.Contains(done.Failed["s0"], "was set to 20 when it was created: restart") || !strings.Contains(done.Failed["late"], "fixes the shares at the start: restart") {
		t.Errorf("%v, %+v", err, done)
	}
}
