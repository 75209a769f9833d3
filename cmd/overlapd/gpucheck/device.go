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
func (c *check) placeProbe(spec *cutcost.ProbeSpec) {
	spec.Device = c.Device
	if !c.rehearsal() {
		spec.GPU = c.deviceName()
	}
}

// placeWorker makes a worker run its model on the device. Its environment shows it
// no other GPU.
func (c *check) placeWorker(spec *segments.LoadSpec) {
	if !c.rehearsal() {
		spec.CUDA = &segments.CUDASpec{}
		spec.WarmSeqLens = []int{c.SeqLen}
	}
}

// placeDaemon returns what a configuration says of the device: keys of the top
// level, and tables. All daemons share one MPS.
func (c *check) placeDaemon() (top, tables string, err error) {
	if c.rehearsal() {
		return fmt.Sprintf("device = %q\n", c.Device), "", nil
	}
	top = fmt.Sprintf("device = %q\ngpu = %q\n", c.Device, c.deviceName())
	if c.mps == nil {
		return top, "\n[mps]\nmode = \"off\"\n", nil
	}
	dir, err := c.mps.pipe()
	return top, fmt.Sprintf("\n[mps]\nmode = \"existing\"\ndir = %q\n", dir), err
}
