package fake_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cuda/fake"
)

// TestTables holds the tables to what NVIDIA's guide says of all of them: seven
// compute slices, eight memory slices, and as many instances as places allow,
// but for the one with all media engines.
func TestTables(t *testing.T) {
	for _, m := range fake.Models {
		for _, p := range m.Profiles {
			end, fit := uint32(0), uint32(0)
			for _, start := range p.Starts {
				if start+p.Size > 8 {
					t.Errorf("%s: profile %d ends at %d", m.Name, p.ID, start+p.Size)
				}
				if start >= end {
					fit, end = fit+1, start+p.Size
				}
			}
			if p.ID == 20 {
				fit = 1
			}
			if p.Max != fit || p.Slices > 7 || p.MemoryMiB > m.MemoryMiB*uint64(p.Size)/8 {
				t.Errorf("%s: %+v", m.Name, p)
			}
		}
	}
}

// TestRules creates and destroys at random and holds the server to the rules.
func TestRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fake.New(rapid.SampledFrom(fake.Models).Draw(t, "model"))
		s.SetMIG(0, true)
		d := s.Devices[0]
		var alive []nvml.GpuInstance
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if len(alive) > 0 && rapid.Bool().Draw(t, "destroy") {
				i := rapid.IntRange(0, len(alive)-1).Draw(t, "which")
				if code := alive[i].Destroy(); code != nvml.SUCCESS {
					t.Fatal(code)
				}
				if code := alive[i].Destroy(); code == nvml.SUCCESS {
					t.Fatal("destroyed twice")
				}
				alive = append(alive[:i], alive[i+1:]...)
				continue
			}
			p := rapid.SampledFrom(d.Model.Profiles).Draw(t, "profile")
			at := nvml.GpuInstancePlacement{Start: uint32(rapid.IntRange(0, 8).Draw(t, "start")), Size: p.Size}
			gi, code := d.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: p.ID}, &at)
			if code == nvml.SUCCESS {
				alive = append(alive, gi)
			}
			check(t, alive)
		}
	})
}

// check holds instances to distinct IDs, disjoint places and seven slices.
func check(t *rapid.T, alive []nvml.GpuInstance) {
	used, ids, slices := map[uint32]bool{}, map[uint32]bool{}, uint32(0)
	for _, gi := range alive {
		info, _ := gi.GetInfo()
		for i := range info.Placement.Size {
			if used[info.Placement.Start+i] {
				t.Fatal("instances overlap")
			}
			used[info.Placement.Start+i] = true
		}
		if ids[info.Id] {
			t.Fatal("an ID is given twice")
		}
		ids[info.Id] = true
		slices += fake.H100.Slices(info.ProfileId)
	}
	if slices > 7 {
		t.Fatalf("%d compute slices", slices)
	}
}

func TestModeNeedsAnIdleGPU(t *testing.T) {
	s := fake.New(fake.H100)
	d := s.Devices[0]
	if err := s.StartProcess(d.UUID, 1, 1); err != nil {
		t.Fatal(err)
	}
	if activation, code := d.SetMigMode(1); activation != nvml.ERROR_IN_USE || code != nvml.SUCCESS {
		t.Errorf("%v, %v", activation, code)
	}
	if current, pending, _ := d.GetMigMode(); current != 0 || pending != 1 {
		t.Errorf("%d, %d", current, pending)
	}
	s.StopProcess(1)
	if activation, _ := d.SetMigMode(1); activation != nvml.SUCCESS {
		t.Error(activation)
	}
	s.Unprivileged = true
	if _, code := d.SetMigMode(0); code != nvml.ERROR_NO_PERMISSION {
		t.Error(code)
	}
}

func TestFailures(t *testing.T) {
	s := fake.New()
	s.Fail("nvmlDeviceGetCount", 1, 2, nvml.ERROR_TIMEOUT)
	var got []nvml.Return
	for range 4 {
		_, code := s.DeviceGetCount()
		got = append(got, code)
	}
	want := []nvml.Return{nvml.SUCCESS, nvml.ERROR_TIMEOUT, nvml.ERROR_TIMEOUT, nvml.SUCCESS}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("call %d: %v", i, got[i])
		}
	}
	s.SetMIG(0, true)
	s.FailAfter("nvmlDeviceSetMigMode", 0, 1, nvml.ERROR_UNKNOWN)
	if _, code := s.Devices[0].SetMigMode(0); code != nvml.ERROR_UNKNOWN || s.Devices[0].MigMode != 0 {
		t.Errorf("%v, mode %d", code, s.Devices[0].MigMode)
	}
	s.Lose(0)
	if _, code := s.Devices[0].GetMemoryInfo(); code != nvml.ERROR_GPU_IS_LOST {
		t.Error(code)
	}
	s.Reset(0)
	if _, code := s.Devices[0].GetMemoryInfo(); code != nvml.SUCCESS {
		t.Error(code)
	}
	if err := s.StartProcess("GPU-no", 1, 1); err == nil {
		t.Error("a process runs nowhere")
	}
}
