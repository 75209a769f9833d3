package cutcost

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/wire"
)

// ErrDevice is returned when a measurement names a device that there is not.
var ErrDevice = errors.New("cutcost: device")

// The devices of a measurement. No name means the CPU.
const (
	CPU  = "cpu"
	CUDA = "cuda"
)

// place is where models run. This is the one file in which a measurement chooses
// it.
type place struct {
	whole ort.SessionOptions // of a whole model
	gpu   *segments.Device   // nil for the CPU
}

// checkDevice refuses the name of a device that there is not.
func checkDevice(name string) error {
	switch name {
	case "", CPU, CUDA:
		return nil
	}
	return fmt.Errorf("%w: unknown device %q; there are %s and %s", ErrDevice, name, CPU, CUDA)
}

// openPlace takes the device that the measurement names into use.
func (p *probe) openPlace() (err error) {
	p.place.whole.Optimization = ort.All
	if p.spec.Device != CUDA {
		return nil
	}
	if p.place.gpu, err = segments.OpenCUDA(p.env, wire.CUDASpec{Device: p.spec.GPU, Spin: p.spec.Spin, ConvSearch: string(p.spec.ConvSearch)}); err != nil {
		return err
	}
	p.close = append(p.close, p.place.gpu.Close)
	p.place.gpu.Session(&p.place.whole)
	return nil
}
