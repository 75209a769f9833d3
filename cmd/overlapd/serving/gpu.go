package serving

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/hostcheck"
	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/probe"
	"github.com/overlapd/overlapd/segments/wire"
)

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
