package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda/hostcheck"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/ort"
)

// host is the JSON of check. ONNX Runtime and the GPU are left out where the device
// is emulated, the GPU also where the configuration uses none. Exposed lists what is
// unsafe about addresses, tokens and certificates, Notes what a worker writes about a
// model that it loads.
type host struct {
	Device      string   `json:"device"`
	Emulated    bool     `json:"emulated,omitempty"`
	Cores       int      `json:"cores"`
	MemoryBytes int64    `json:"memory_bytes"`
	ORTPath     string   `json:"ort_path"`
	ORTVersion  string   `json:"ort_version"`
	ORTPinned   bool     `json:"ort_pinned"`
	Fault       string   `json:"fault,omitempty"`
	Exposed     []string `json:"exposed,omitempty"`
	Notes       []string `json:"notes,omitempty"`

	// Pool are the devices of a configuration with several, with the services on each.
	Pool []poolDevice `json:"pool,omitempty"`

	GPU *hostcheck.Report `json:"gpu,omitempty"`
}

// poolDevice is a device of a pool, and the services that may run on it.
type poolDevice struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	Services []string `json:"services"`
}

// lookAtHost looks for what a daemon of the configuration would need here. What it found it returns
// with an error too, because a report that names the fault and the versions around it is of more use.
func lookAtHost(ctx context.Context, c config.Config) (host, error) {
	// The memory is what models and arenas must fit in. A kernel that does not tell it is no fault.
	h := host{Device: cli.CPU(), Cores: runtime.NumCPU()}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		h.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
	if c.Emulated() {
		device, err := daemon.EmulatedDevice(c)
		if err != nil {
			h.Fault = err.Error()
		}
		h.Device, h.Emulated = device, true
		return h, err
	}
	// Without ONNX Runtime the GPU is looked at as well: both may be missing, and both be installed then.
	lib, err := ort.Load()
	if err == nil {
		h.ORTPath, h.ORTVersion, h.ORTPinned = lib.Path(), lib.Version(), lib.Pinned()
	}
	if c.MayUseGPU() {
		found := lookAtGPUs(ctx, c, lib)
		h.GPU = &found
		// device = "auto" takes the CPU where the GPU cannot be used, so that is no error.
		if c.Pool()[0].Kind != config.DeviceAuto {
			err = errors.Join(err, found.Err())
		}
	}
	if err != nil {
		h.Fault = err.Error()
	}
	return h, err
}

// writeText writes comments of a configuration file: standard output has the configuration, and who
// sends both to one file can still use it.
func (h host) writeText(w io.Writer) {
	for _, e := range h.Exposed {
		fmt.Fprintf(w, "# unsafe: %s\n", e)
	}
	for _, n := range h.Notes {
		fmt.Fprintf(w, "# %s\n", n)
	}
	for _, d := range h.Pool {
		fmt.Fprintf(w, "# device %s (%s): %s\n", d.Name, d.Kind, strings.Join(d.Services, ", "))
	}
	if h.Emulated {
		if h.Fault == "" {
			fmt.Fprintf(w, "# device: %s, nothing is computed\n", h.Device)
		}
		return
	}
	fmt.Fprintf(w, "# device: %s, %.1f GiB of memory\n", h.Device, float64(h.MemoryBytes)/(1<<30))
	// Another version may do as well, but results and speed were never compared with it.
	if h.ORTPath != "" {
		note := ""
		if !h.ORTPinned {
			note = ", not the version that overlapd is tested with"
		}
		fmt.Fprintf(w, "# ONNX Runtime %s%s: %s\n", h.ORTVersion, note, h.ORTPath)
	}
	if h.GPU != nil {
		h.GPU.WriteText(w)
	}
}
