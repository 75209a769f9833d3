package fit

import (
	"testing"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/training"
)

// quickDevice are options for a device that takes a moment to make.
func quickDevice() DeviceOptions {
	o := DefaultDeviceOptions()
	o.Hidden, o.Epochs = []int{32, 32}, 50
	return o
}

func makeDevice(t *testing.T, d *training.Dataset, solo []training.SoloTime, o DeviceOptions) (*device.Profile, *DeviceReport) {
	t.Helper()
	p, r, err := Device(t.Context(), d, solo, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

func TestDeviceOfFormula(t *testing.T) {
	p, r := makeDevice(t, synthetic(1200, 1), nil, quickDevice())
	t.Logf("%+v", r)
	if r.MAPETest > 6 {
		t.Errorf("off by %.2f %% where the noise is 1 %%", r.MAPETest)
	}
	if p.Rows != 1200 || r.TrainRows != 1080 || r.TestRows != 120 {
		t.Errorf("report %+v", r)
	}
	for _, b := range p.Spread.Bands {
		if m := b.Parts[len(b.Parts)/2]; m < 0.008 || m > 0.012 {
			t.Errorf("groups of %d spans spread %v in the middle, want 0.01", b.Spans, m)
		}
	}
}
