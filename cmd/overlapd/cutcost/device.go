package cutcost

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
)

// ErrDevice is returned when a measurement names a device that this build
// cannot run models on.
var ErrDevice = errors.New("cutcost: device")

// The devices of a measurement. No name means the CPU.
const (
	CPU  = "cpu"
	CUDA = "cuda"
)

// device is how models get onto a device. This is the one place where a
// measurement chooses it.
type device struct {
	whole ort.SessionOptions     // of a whole model
	cut   func(*segments.Config) // makes the segments of a cut model run there
}

// deviceOf returns the device that a measurement asks for.
func deviceOf(spec *ProbeSpec) (device, error) {
	switch spec.Device {
	case "", CPU:
		return device{whole: ort.SessionOptions{Optimization: ort.All}, cut: func(*segments.Config) {}}, nil
	case CUDA:
		return device{}, fmt.Errorf("%w: this build runs no models on CUDA; take another build, or the CPU", ErrDevice)
	}
	return device{}, fmt.Errorf("%w: unknown device %q; there are %s and %s", ErrDevice, spec.Device, CPU, CUDA)
}
