package serving

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda/hostcheck"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/ort"
)

func parsed(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := config.Parse("/etc/overlapd/c.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const twoServices = `
[[service]]
name = "a"
model = "zoo:tiny_cnn"
[[service]]
name = "b"
model = "zoo:tiny_mlp"
`

func TestMayUseGPU(t *testing.T) {
	for text, want := range map[string]bool{"": true, "device = \"cuda\"": true, "device = \"cpu\"": false} {
		c := parsed(t, text+"\n"+twoServices)
		if got := c.MayUseGPU(); got != want {
			t.Errorf("%q may use a GPU: got %t", text, got)
		}
	}
}

// TestLookAtGPUs: without a GPU, auto is fine with that and cuda is not.
func TestLookAtGPUs(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("there is a GPU")
	}
	for text, fine := range map[string]bool{"": true, "device = \"cuda\"\n": false} {
		r := lookAtGPUs(t.Context(), parsed(t, text+twoServices), nil)
		if len(r.Findings) != 1 || (r.Err() == nil) != fine {
			t.Errorf("%q: found %+v", text, r.Findings)
		}
	}
}

func TestHostText(t *testing.T) {
	h := host{Device: "cpu, 2 cores", MemoryBytes: 3 << 30, ORTPath: "/lib/o.so", ORTVersion: "1.30.0", ORTPinned: true}
	for _, c := range []struct {
		change func(*host)
		want   string
	}{
		{func(*host) {}, "# device: cpu, 2 cores, 3.0 GiB of memory\n# ONNX Runtime 1.30.0: /lib/o.so\n"},
		{func(h *host) { h.ORTPinned = false }, "# device: cpu, 2 cores, 3.0 GiB of memory\n# ONNX Runtime 1.30.0, not the version that overlapd is tested with: /lib/o.so\n"},
		{func(h *host) { h.ORTPath, h.Fault = "", "not found" }, "# device: cpu, 2 cores, 3.0 GiB of memory\n"},
		{func(h *host) { h.Device, h.Emulated = "emulated: a100", true }, "# device: emulated: a100, nothing is computed\n"},
		{func(h *host) { h.Emulated, h.Fault = true, "not found" }, ""},
		{func(h *host) {
			h.GPU = &hostcheck.Report{Findings: []hostcheck.Finding{{Level: hostcheck.Fault, Says: "no cuBLAS", Remedy: "install it"}}}
			h.Fault = "no cuBLAS; install it"
		}, "# device: cpu, 2 cores, 3.0 GiB of memory\n# ONNX Runtime 1.30.0: /lib/o.so\n# fault: no cuBLAS; install it\n"},
	} {
		h := h
		c.change(&h)
		var b bytes.Buffer
		if h.writeText(&b); b.String() != c.want {
			t.Errorf("got %q, want %q", b.String(), c.want)
		}
	}
}

// A device that is emulated needs no ONNX Runtime.
func TestLookAtHostEmulated(t *testing.T) {
	t.Setenv(ort.PathVariable, "/nonexistent")
	c := config.Default()
	c.Device, c.DeviceProfile = "emulated", "/nonexistent.device.json"
	h, err := lookAtHost(t.Context(), c)
	if err == nil || h.Fault != err.Error() || !h.Emulated || !strings.Contains(h.Fault, c.DeviceProfile) || h.ORTPath != "" {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestLookAtHostWithoutORT(t *testing.T) {
	t.Setenv(ort.PathVariable, "/nonexistent")
	h, err := lookAtHost(t.Context(), config.Default())
	if err == nil || h.Fault != err.Error() || h.Cores != runtime.NumCPU() || h.MemoryBytes <= 0 {
		t.Errorf("got %+v, %v", h, err)
	}
}
