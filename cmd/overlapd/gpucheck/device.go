package gpucheck

import (
	"fmt"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/segments"
)

// rehearsal reports whether no GPU is involved.
func (o *Options) rehearsal() bool { return o.Device == cutcost.CPU }

// placeProbe makes a measurement of one model run on the device. It and the two
// below are all that says how something gets there.
func (o *Options) placeProbe(spec *cutcost.ProbeSpec) {
	spec.Device, spec.GPU = o.Device, o.GPU
}

// placeWorker makes a worker run its model on the device.
func (o *Options) placeWorker(*segments.LoadSpec) error {
	if o.Device == cutcost.CUDA {
		return fmt.Errorf("%w: workers of this build run no models on CUDA; take another build, or rehearse with --device cpu", ErrDevice)
	}
	return nil
}

// placeDaemon returns the lines of a configuration that choose the device.
func (c *check) placeDaemon() (string, error) {
	if c.Device == cutcost.CUDA {
		return "", fmt.Errorf("%w: the daemon of this build runs no models on CUDA; take another build, or rehearse with --device cpu", ErrDevice)
	}
	return fmt.Sprintf("device = %q\n", c.Device), nil
}
