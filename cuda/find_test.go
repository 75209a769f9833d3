package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

func TestFind(t *testing.T) {
	s := fakegpu.New(fakegpu.H100, fakegpu.A100)
	s.SetMIG(0, true)
	place(t, s, 9, 4, 3)
	f := facts(t, open(t, s))
	gpu, mig := f.Devices[1].UUID, f.Devices[0].Instances[0].UUID
	for name, want := range map[string]string{
		"0": f.Devices[0].UUID, "1": gpu, " 1 ": gpu, gpu: gpu, strings.ToUpper(gpu): gpu, gpu[:12]: gpu,
		"00000000:3C:00.0": gpu, "0000:3c:00.0": gpu, "3c:00.0": gpu, "3C:00": gpu,
		mig: mig, mig[:9]: mig,
	} {
		got, err := f.Find(name)
		if err != nil || got.UUID() != want {
			t.Errorf("%q: %s, %v", name, got.UUID(), err)
		}
		if (got.Instance != nil) != strings.HasPrefix(want, "MIG-") {
			t.Errorf("%q: %+v", name, got.Instance)
		}
	}
	for _, name := range []string{"", "2", "-1", "x", "GPU-", gpu[:7], "GPU-0000dead", "3d:00.0", "3c:0g.0", "::", "MIG-", "1:2:3:4:5"} {
		if got, err := f.Find(name); !errors.Is(err, cuda.ErrNotFound) || !strings.Contains(err.Error(), gpu) {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
}

func TestFindAmbiguous(t *testing.T) {
	f := cuda.Facts{Devices: []cuda.Device{{UUID: "GPU-12345678"}, {UUID: "GPU-12349999", Index: 1}}}
	if _, err := f.Find("GPU-1234"); !errors.Is(err, cuda.ErrAmbiguous) || !strings.Contains(err.Error(), "GPU-12349999") {
		t.Errorf("got %v", err)
	}
	if got, err := f.Find("GPU-12349"); err != nil || got.Device.Index != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestFindExact prefers a UUID that is the name to one that begins with it.
func TestFindExact(t *testing.T) {
	f := cuda.Facts{Devices: []cuda.Device{{UUID: "GPU-123456"}, {UUID: "GPU-12345", Index: 1}}}
	if got, err := f.Find("GPU-12345"); err != nil || got.Device.Index != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
