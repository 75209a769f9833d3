package gpucheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/overlapd/overlapd/cuda/mps"
)

// pipeVariable is where CUDA looks for the pipes of MPS.
const pipeVariable = "CUDA_MPS_PIPE_DIRECTORY"

// shared is an MPS control daemon that all steps use from the pairs on. A nil one
// is a device without MPS.
type shared struct{ control *mps.Control }

// startMPS starts a control daemon of our own, which ends with the check.
func (c *check) startMPS(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "overlapd-gpu-check-")
	if err != nil {
		return err
	}
	control, err := mps.Start(ctx, mps.Options{Program: c.MPS, Device: c.deviceName(), Directory: filepath.Join(dir, "mps")})
	if err != nil {
		_ = os.RemoveAll(dir) // what matters is why
		return fmt.Errorf("MPS: %w", err)
	}
	c.mps = &shared{control}
	c.later(func() error { return os.RemoveAll(dir) }, control.Stop)
	return nil
}

// env returns the environment of a client, nil for ours if there is no MPS.
func (s *shared) env() ([]string, error) {
	if s == nil {
		return nil, nil
	}
	return s.control.ClientEnv(mps.Limits{})
}

// pipe returns the folder of the pipes.
func (s *shared) pipe() (string, error) {
	env, err := s.env()
	if err != nil {
		return "", err
	}
	for _, line := range env {
		if dir, ok := strings.CutPrefix(line, pipeVariable+"="); ok {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: MPS told of no %s", ErrDevice, pipeVariable)
}

// workerEnv returns the environment of a worker as it is from the pairs on.
func (c *check) workerEnv() ([]string, error) {
	if c.mps == nil && !c.rehearsal() {
		return c.offEnv(), nil
	}
	return c.mps.env()
}

// offEnv returns the environment of a worker that is nobody's client.
func (c *check) offEnv() []string { return mps.OffEnv(c.deviceName()) }
