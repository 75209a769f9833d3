package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/hostcheck"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/topology"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/probe"
	"github.com/overlapd/overlapd/segments/wire"
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
	h := host{Device: cli.CPU(), Cores: len(slices.Concat(topology.Usable()...))}
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
	// Without ONNX Runtime the GPU is looked at as well: if both are missing, one check says so.
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

// writeText writes comments of a configuration file: standard output has the configuration, and a file with
// both is still one.
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

// What a daemon takes of its host's memory, apart from what the configuration bounds.
const (
	daemonMemory = 256 << 20

	// workerMemory is that of a process with ONNX Runtime, before it loads a model.
	workerMemory = 150 << 20

	// memoryStep is what a limit is rounded up to, so that small changes do not replace pods.
	memoryStep = 64 << 20
)

// HostMemory returns the most memory that the daemon of a configuration and its workers take
// of the host, where the files of all models are found. No worker counts on another to be
// loaded before it.
func HostMemory(c *config.Config, file func(model string) (string, error)) (bytes int64, err error) {
	bytes = daemonMemory + c.Limits.MemoryBytes
	// Expanded has a service for each variant, since each has a worker of its own.
	for _, s := range c.Expanded().Services {
		path, err := file(s.Model)
		if err != nil {
			return 0, err
		}
		f, err := models.Open(path)
		if err != nil {
			return 0, err
		}
		var weights int64
		for i := range f.Graph.Initializers {
			weights += f.Graph.Initializers[i].Bytes
		}
		loading := segments.LoadBytes(f)
		_ = f.Close() // it was read
		w := &c.Worker
		bytes += workerMemory + max(loading, weights+w.InputBytes+w.OutputBytes+w.IntermediateBytes)
	}
	return (bytes + memoryStep - 1) / memoryStep * memoryStep, nil
}

// lookAtGPUs looks for what keeps the first device of a configuration from being the GPU that it may be.
func lookAtGPUs(ctx context.Context, c config.Config, lib *ort.Library) hostcheck.Report {
	name := c.Pool().GPUs()[0]
	o := hostcheck.Options{
		GPU: name, Wanted: c.Pool()[0].Kind != config.DeviceAuto, Services: len(c.Expanded().Services),
		MPS:         hostcheck.MPS{Join: c.MPS.Mode == config.MPSExisting, Directory: c.MPS.Dir, Program: c.MPS.Program},
		MIG:         hostcheck.MIG{Instances: c.Pool().Instances(name, c.Services), Owner: c.MIG.Owner, Record: func() (mig.Record, error) { return gpu.ReadRecord(c.StateDir) }},
		Runtime:     hostcheck.Runtime{Pinned: ort.PinnedCUDAVersion},
		LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), User: os.Geteuid(),
		Open: func() (*cuda.Host, error) { return cuda.Open(nil) },
		Access: func(path string) error {
			return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
		},
		Needs: hostcheck.Needs, Try: tryGPU,
	}
	// Where the daemon would start MPS depends on the GPU, which is found during the check.
	if c.MPS.Mode == config.MPSOwn {
		o.MPS.Own = func(uuid string) string { return gpu.MPSDirOf(c.MPS.Dir, uuid) }
	}
	if lib != nil {
		o.Runtime.Path = lib.Path()
		o.Runtime.Providers, _ = lib.Providers() // none is as good as no CUDA
	}
	return hostcheck.Check(ctx, o)
}

const (
	// tryModel has a convolution and a matrix product, so that cuDNN and cuBLAS are needed.
	tryModel = "tiny_cnn"
	// tryTimeout is enough for a first start of CUDA, which may load a gigabyte.
	tryTimeout = time.Minute
	// tryTolerance is allowed between its outputs and the CPU's, relative to the largest.
	tryTolerance = 1e-3
)

// tryGPU compares a small model with the CPU, in a process that a broken provider may end. It is the
// last word of a check, and the daemon asks for it before it starts workers on a GPU.
func tryGPU(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, fmt.Errorf("it took longer than %v: the GPU or the driver hangs; look for Xid messages (dmesg)", tryTimeout))
	defer cancel()
	path, err := cli.ModelPath(tryModel)
	if err != nil {
		return err
	}
	// The workers' own cache: the optimized model is of use to them, and a second check is faster.
	cache, err := cli.CacheDir("optimized")
	if err != nil {
		return err
	}
	r, err := probe.Run(ctx, cli.Self("bench", "probe"), probe.Spec{
		Path: path, Device: probe.CUDA, CUDA: wire.CUDASpec{Device: uuid}, CacheDir: cache, Batch: 1, SeqLen: 1, Threads: 1, Mode: probe.ModeApart,
	})
	switch {
	case err != nil:
		return err
	case r.Deviation == nil || r.Deviation.NotFinite > 0 || r.Deviation.RelToMax > tryTolerance:
		return fmt.Errorf("its outputs are wrong: %+v", r.Deviation)
	}
	return nil
}
