package gpucheck

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda/mps/fakemps"
)

const testDevice = "GPU-4e0b6c2a-8d1f-4b7a-9c3e-0123456789ab"

// TestMPS: clients get one environment, others another, and nothing is left.
func TestMPS(t *testing.T) {
	bin := t.TempDir()
	program, err := fakemps.Install(bin)
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "gpuc") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	t.Setenv("TMPDIR", short)
	c := withPairs(DefaultOptions())
	c.GPU, c.MPS = testDevice, program
	if err := c.startMPS(context.Background()); err != nil {
		t.Fatal(err)
	}
	pipe, err := c.mps.pipe()
	if err != nil || !strings.HasPrefix(pipe, short) {
		t.Errorf("pipes in %q, %v", pipe, err)
	}
	env, err := c.mps.env()
	if err != nil || !slices.Contains(env, pipeVariable+"="+pipe) || !hasVariable(env, "PATH") {
		t.Errorf("a client's environment is %q, %v", env, err)
	}
	if off := c.offEnv(); slices.Contains(off, pipeVariable+"="+pipe) || !hasVariable(off, "PATH") {
		t.Errorf("the environment of a worker that is no client is %q", off)
	}
	if _, tables, err := c.placeDaemon(); err != nil || !strings.Contains(tables, "mode = \"existing\"\ndir = \""+pipe+"\"") {
		t.Errorf("a daemon's configuration has %q, %v", tables, err)
	}
	for _, f := range slices.Backward(c.mu.close) {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(short, "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func hasVariable(env []string, name string) bool {
	return slices.ContainsFunc(env, func(line string) bool { return strings.HasPrefix(line, name+"=") })
}

func TestMPSIsMissing(t *testing.T) {
	c := withPairs(DefaultOptions())
	c.MPS = "/absent/nvidia-cuda-mps-control"
	if err := c.startMPS(context.Background()); err == nil || !strings.HasPrefix(err.Error(), "MPS: ") {
		t.Errorf("got %v", err)
	}
	if c.mps != nil || len(c.mu.close) > 0 {
		t.Error("a daemon that did not start is kept")
	}
	if env, err := c.mps.env(); env != nil || err != nil {
		t.Errorf("%q, %v", env, err)
	}
}
