package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

func TestMain(m *testing.M) {
	fakemps.Take()
	// Else each process that the race detector watches takes a second to end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// rig is a host with fake GPUs and a fake MPS.
type rig struct {
	t      *testing.T
	server *fakegpu.Server
	config config.Config
	opts   Options
}

func newRig(t *testing.T, s *fakegpu.Server) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpu") // the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := fakemps.Install(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Device, c.StateDir, c.MPS.Dir, c.Services = config.DeviceCUDA, t.TempDir(), filepath.Join(dir, "mps"), []config.Service{{Name: "a"}, {Name: "b"}}
	return &rig{t: t, server: s, config: c,
		opts: Options{NVML: func() (*cuda.Host, error) { return cuda.Open(s) }, Boot: "this boot", MPS: mps.Options{
			Program: program, Poll: 20 * time.Millisecond,
			ReadyTimeout: patience, CommandTimeout: patience, StopTimeout: patience,
		}},
	}
}

// divided declares two instances that the daemon owns.
func (r *rig) divided() *rig {
	r.config.MIG.Owner = true
	r.config.Devices = []config.Device{
		{Name: "large", Kind: config.DeviceCUDA, MIG: "3g.40gb"}, {Name: "small", Kind: config.DeviceCUDA, MIG: "2g.20gb"},
	}
	return r
}

func (r *rig) look() *GPU {
	r.t.Helper()
	g, err := look(r.config, r.config.Pool().GPUs()[0], r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

func (r *rig) take() *GPU {
	r.t.Helper()
	g := r.look()
	if err := g.Take(context.Background()); err != nil {
		r.t.Fatal(err, g.Give())
	}
	return g
}

// checkClean tells what is left of a daemon.
func (r *rig) checkClean(state string) {
	r.t.Helper()
	if got := r.server.State(); got != state {
		r.t.Errorf("the GPU is\n%snot\n%s", got, state)
	}
	if !r.server.Closed() {
		r.t.Error("NVML is open")
	}
	if _, err := os.Stat(filepath.Join(r.config.StateDir, recordName)); err == nil {
		r.t.Error("the record is left")
	}
}
