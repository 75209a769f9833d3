package gpucheck

import (
	"context"
	"fmt"
	"os"
)

// shared is an MPS control daemon that all steps use from the pairs on. A nil one
// is a device without MPS.
type shared struct{}

// startMPS starts a control daemon of our own, which ends with the check.
func (c *check) startMPS(context.Context) error {
	return fmt.Errorf("%w: this build starts no MPS daemon; take another build", ErrDevice)
}

// env returns the environment of a client, nil for ours if there is no MPS.
func (s *shared) env() ([]string, error) { return nil, nil }

// offEnv returns the environment of a worker that is nobody's client.
func (c *check) offEnv() []string { return os.Environ() }

// deviceName returns the UUID of the device that is checked, or what it was
// called where NVML said nothing.
func (c *check) deviceName() string {
	if d := c.chosen(); d != nil {
		return d.UUID
	}
	return c.GPU
}
