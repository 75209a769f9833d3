package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cmd/overlapd/hostcheck"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/ort"
)

const (
	// tryModel is a model of the zoo with a convolution and a matrix product, so
	// that cuDNN and cuBLAS are needed.
	tryModel = "tiny_cnn"

	// tryTimeout bounds a first start of CUDA, which may load a gigabyte.
	tryTimeout = time.Minute

	// tryTolerance is how far its outputs may be from the CPU's, relative to the
	// largest.
	tryTolerance = 1e-3
)

// lookAtGPUs finds out what this host's GPUs can do for a configuration.
func lookAtGPUs(ctx context.Context, c config.Config, lib *ort.Library) hostcheck.Report {
	o := hostcheck.Options{Config: c, LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), User: os.Geteuid(), Try: tryGPU}
	if lib != nil {
		o.RuntimePath = lib.Path()
		o.Providers, _ = lib.Providers() // none is as good as no CUDA
	}
	return hostcheck.Look(ctx, o)
}

// mayUseGPU reports whether a GPU would be used: with "auto", if there is one.
func mayUseGPU(c config.Config) bool { return c.Device == cutcost.CUDA || c.Device == "auto" }

// tryGPU runs a small model in a process of its own, for a broken provider may end
// it, and compares with the CPU.
func tryGPU(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, fmt.Errorf("it took longer than %v: the GPU or the driver hangs, look for Xid messages (dmesg)", tryTimeout))
	defer cancel()
	path, err := modelPath(tryModel)
	if err != nil {
		return err
	}
	cache, err := cacheDir("optimized")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r, err := cutcost.RunProbe(ctx, []string{self, "bench", "probe"}, cutcost.ProbeSpec{
		Path: path, Device: cutcost.CUDA, GPU: uuid, CacheDir: cache, Batch: 1, SeqLen: 1, Threads: 1, Mode: cutcost.ModeApart,
	})
	switch {
	case err != nil:
		return err
	case r.Deviation == nil || r.Deviation.NotFinite > 0 || r.Deviation.RelToMax > tryTolerance:
		return fmt.Errorf("its outputs are wrong: %+v", r.Deviation)
	}
	return nil
}
