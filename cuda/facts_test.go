package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

func TestFacts(t *testing.T) {
	s := fakegpu.New(fakegpu.A100, fakegpu.H200)
	s.Devices[1].Mode = nvml.COMPUTEMODE_EXCLUSIVE_PROCESS
	if err := s.StartProcess(s.Devices[1].UUID, 99, 1<<30); err != nil {
		t.Fatal(err)
	}
	f := facts(t, open(t, s))
	if f.Driver != "580.65.06" || f.CUDA != (cuda.Version{Major: 13}) || len(f.Devices) != 2 {
		t.Fatalf("%+v", f)
	}
	a, h := f.Devices[0], f.Devices[1]
	if a.Name != "NVIDIA A100-SXM4-40GB" || a.Capability.String() != "8.0" || a.PCI != "00000000:3B:00.0" || a.Memory.Value.Total != 40<<30 {
		t.Errorf("%+v", a)
	}
	if h.Index != 1 || h.ComputeMode.Value != cuda.ExclusiveProcess || !h.Persistence.Value || !h.ECC.Value.Enabled || h.PowerLimit.Value != 700 {
		t.Errorf("%+v", h)
	}
	if p := h.Processes.Value; len(p) != 1 || p[0].PID != 99 || p[0].Memory.Value != 1<<30 {
		t.Errorf("processes %+v", p)
	}
	if !h.MIG.Capable || h.MIG.Enabled || h.MIG.Pending || !h.MIG.Listed || h.MIG.Slices != 8 {
		t.Errorf("MIG %+v", h.MIG)
	}
}

// TestProfileNames holds the names made from sizes to those of NVIDIA's tables.
func TestProfileNames(t *testing.T) {
	for _, c := range []struct {
		model fakegpu.Model
		names string
	}{
		{fakegpu.A100, "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"},
		{fakegpu.A100Large, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"},
		{fakegpu.H100, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"},
		{fakegpu.H200, "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"},
	} {
		var names []string
		for _, p := range facts(t, open(t, fakegpu.New(c.model))).Devices[0].MIG.Profiles {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != c.names {
			t.Errorf("%s: %s, want %s", c.model.Name, got, c.names)
		}
	}
}

func TestInstances(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	s.SetMIG(0, true)
	place(t, s, 9, 4, 3)  // whole
	place(t, s, 14, 0, 1) // its compute instance is smaller
	place(t, s, 20, 3, 0) // has none
	h := open(t, s)
	d := facts(t, h).Devices[0]
	type row struct {
		profile string
		at      cuda.Placement
		compute int
		whole   bool
	}
	want := []row{{"2g.20gb", cuda.Placement{Start: 0, Size: 2}, 1, false}, {"1g.10gb+me", cuda.Placement{Start: 3, Size: 1}, 0, false}, {"3g.40gb", cuda.Placement{Start: 4, Size: 4}, 1, true}}
	var got []row
	for _, i := range d.Instances {
		got = append(got, row{i.Profile, i.Placement, len(i.Compute), i.UUID != ""})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
	if p, _ := d.MIG.Profile("3g.40gb"); p.Room != 0 || p.Max != 2 {
		t.Errorf("%+v", p)
	}
	again, err := h.Device(d.UUID)
	if err != nil || len(again.Instances) != 3 {
		t.Errorf("%v, %+v", err, again)
	}
}

// TestUnprivileged sees MIG devices with their profiles, and says that there may
// be more.
func TestUnprivileged(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	s.Unprivileged = true
	s.SetMIG(0, true)
	place(t, s, 20, 0, 1)
	place(t, s, 15, 2, 1)
	place(t, s, 9, 4, 0)
	d := facts(t, open(t, s)).Devices[0]
	if d.MIG.Listed || !errors.Is(d.MIG.Why, cuda.ErrPermission) || d.Fault != nil {
		t.Errorf("%+v", d.MIG)
	}
	var got []string
	for _, i := range d.Instances {
		got = append(got, i.Profile)
		if i.UUID == "" || i.Placement.Size != 0 {
			t.Errorf("%+v", i)
		}
	}
	if diff := cmp.Diff([]string{"1g.20gb", "1g.10gb+me"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestListingRefused may ask for placements and not for instances.
func TestListingRefused(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	s.SetMIG(0, true)
	place(t, s, 9, 4, 3)
	s.Fail("nvmlDeviceGetGpuInstances", 2, -1, nvml.ERROR_NO_PERMISSION)
	d := facts(t, open(t, s)).Devices[0]
	if d.Fault != nil || d.MIG.Listed || len(d.Instances) != 1 || d.Instances[0].Profile != "3g.40gb" {
		t.Errorf("%+v", d)
	}
}

// TestOneLostGPU shows the others.
func TestOneLostGPU(t *testing.T) {
	s := fakegpu.New(fakegpu.A100, fakegpu.A100)
	s.Lose(0)
	f := facts(t, open(t, s))
	if !errors.Is(f.Devices[0].Fault, cuda.ErrLost) || f.Devices[1].Fault != nil {
		t.Errorf("%v, %v", f.Devices[0].Fault, f.Devices[1].Fault)
	}
	if _, err := f.Find("0"); !errors.Is(err, cuda.ErrLost) {
		t.Errorf("got %v", err)
	}
}
