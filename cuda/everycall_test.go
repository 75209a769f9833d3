package cuda_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

// divided returns a host of two GPUs, the first of which has two instances.
func divided(t interface {
	Helper()
	Fatal(...any)
}) *fakegpu.Server {
	t.Helper()
	s := fakegpu.New(fakegpu.H100, fakegpu.A100)
	s.SetMIG(0, true)
	for _, start := range []uint32{0, 4} {
		if err := s.Place(0, 9, start, 3); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// callsOf returns the calls that something makes, each once.
func callsOf(t *testing.T, s *fakegpu.Server, do func(*cuda.Host)) []string {
	t.Helper()
	made := map[string]bool{}
	h := open(t, s)
	s.OnCall = func(call string) { made[call] = true }
	do(h)
	s.OnCall = nil
	if len(made) == 0 {
		t.Fatal("it makes no call")
	}
	return slices.Sorted(maps.Keys(made))
}

// faultOf returns the first Fault in an error.
func faultOf(err error) *cuda.Fault {
	var f *cuda.Fault
	errors.As(err, &f)
	return f
}

// unread returns the calls that left something of a device unknown.
func unread(d cuda.Device) (calls []string) {
	for _, err := range []error{
		d.Memory.Err, d.PowerLimit.Err, d.ComputeMode.Err, d.Persistence.Err, d.ECC.Err, d.ECC.Value.Uncorrected.Err, d.Processes.Err, d.MIG.Why, d.Fault,
	} {
		if f := faultOf(err); f != nil {
			calls = append(calls, f.Call)
		}
	}
	for _, i := range d.Instances {
		for _, c := range i.Compute {
			for _, err := range []error{c.Memory.Err, c.Processes.Err} {
				if f := faultOf(err); f != nil {
					calls = append(calls, f.Call)
				}
			}
		}
	}
	return calls
}

// TestFactsWhenACallFails: whatever call fails, facts are read, what it would have
// told is unknown with the call's name, and no value is made up.
func TestFactsWhenACallFails(t *testing.T) {
	for _, call := range callsOf(t, divided(t), func(h *cuda.Host) { h.Facts() }) {
		t.Run(call, func(t *testing.T) {
			s := divided(t)
			h := open(t, s)
			s.Fail(call, 0, -1, nvml.ERROR_UNKNOWN)
			f, err := h.Facts()
			if err != nil {
				if got := faultOf(err); got == nil || got.Call != call || !errors.Is(err, cuda.ErrDriver) || !strings.Contains(err.Error(), "; ") {
					t.Errorf("got %v", err)
				}
				return
			}
			if len(f.Devices) != 2 {
				t.Fatalf("%d devices", len(f.Devices))
			}
			if !slices.Contains(unread(f.Devices[0]), call) && !slices.Contains(unread(f.Devices[1]), call) && !optional(call) {
				t.Errorf("nothing says that it failed: %+v", f.Devices)
			}
		})
	}
}

// optional are calls whose failure says that there is nothing of the kind.
func optional(call string) bool {
	return slices.Contains([]string{"nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstanceRemainingCapacity", "nvmlDeviceGetMPSComputeRunningProcesses"}, call)
}

// TestFactsWhenACallFailsOnce: what fails once leaves no trace in the next facts.
func TestFactsWhenACallFailsOnce(t *testing.T) {
	s := divided(t)
	h := open(t, s)
	whole := facts(t, h)
	rapid.Check(t, func(t *rapid.T) {
		s.Mend()
		skip := rapid.IntRange(0, 200).Draw(t, "skip")
		s.Fail("", skip, 1, rapid.SampledFrom([]nvml.Return{
			nvml.ERROR_UNKNOWN, nvml.ERROR_TIMEOUT, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_NOT_FOUND, nvml.ERROR_INSUFFICIENT_SIZE,
		}).Draw(t, "code"))
		if f, err := h.Facts(); err == nil && len(f.Devices) != len(whole.Devices) {
			t.Fatalf("%d devices", len(f.Devices))
		}
		s.Mend()
		again, err := h.Facts()
		if err != nil || again.Devices[0].Fault != nil || len(again.Devices[0].Instances) != 2 || again.Devices[0].Instances[1].UUID != whole.Devices[0].Instances[1].UUID {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}

// TestPartitionWhenACallFails checks that the error of each failed call names the call and
// the instance, and that no partial change goes unreported.
func TestPartitionWhenACallFails(t *testing.T) {
	acts := map[string]func(*cuda.Host, string, cuda.Profile) error{
		"mode": func(h *cuda.Host, gpu string, _ cuda.Profile) error { return h.SetMIGMode(gpu, true) },
		"GPU instance": func(h *cuda.Host, gpu string, p cuda.Profile) error {
			_, err := h.CreateGPUInstance(gpu, p, cuda.Placement{Start: 4, Size: 4})
			return err
		},
		"compute instance": func(h *cuda.Host, gpu string, _ cuda.Profile) error {
			_, err := h.CreateComputeInstance(gpu, 1)
			return err
		},
		"end of a compute instance": func(h *cuda.Host, gpu string, _ cuda.Profile) error { return h.DestroyComputeInstance(gpu, 2, 0) },
		"end of a GPU instance":     func(h *cuda.Host, gpu string, _ cuda.Profile) error { return h.DestroyGPUInstance(gpu, 1) },
	}
	prepare := func(t *testing.T) *fakegpu.Server {
		s := fakegpu.New(fakegpu.H100)
		s.SetMIG(0, true)
		place(t, s, 14, 0, 0) // GPU instance 3 without, another with a compute instance
		place(t, s, 14, 2, 2)
		return s
	}
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			s := prepare(t)
			d := facts(t, open(t, s)).Devices[0]
			p, _ := d.MIG.Profile("3g.40gb")
			for _, call := range callsOf(t, s, func(h *cuda.Host) { act(h, d.UUID, p) }) {
				s := prepare(t)
				h := open(t, s)
				before := s.State()
				s.Fail(call, 0, -1, nvml.ERROR_TIMEOUT)
				err := act(h, d.UUID, p)
				f := faultOf(err)
				if f == nil || f.Call != call && !strings.HasPrefix(f.Call, call) || !errors.Is(err, cuda.ErrDriver) {
					t.Errorf("%s: %v", call, err)
				}
				if after := s.State(); after != before && !strings.HasSuffix(call, "GetInfo") {
					t.Errorf("%s failed, and yet:\n%s", call, after)
				}
			}
		})
	}
}

// TestFindFindsEach: every name of every device and MIG device leads to it, and no
// other.
func TestFindFindsEach(t *testing.T) {
	f := facts(t, open(t, divided(t)))
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(f.Devices).Draw(t, "device")
		uuid, names := d.UUID, []string{d.UUID, d.PCI, strings.ToLower(d.PCI), strings.TrimPrefix(d.PCI, "00000000:"), string(rune('0' + d.Index))}
		if len(d.Instances) > 0 && rapid.Bool().Draw(t, "instance") {
			i := rapid.SampledFrom(d.Instances).Draw(t, "which")
			uuid, names = i.UUID, []string{i.UUID, strings.ToLower(i.UUID)}
		}
		cut := rapid.IntRange(len("GPU-")+8, len(uuid)).Draw(t, "cut")
		for _, name := range append(names, uuid[:cut], "  "+uuid+" ") {
			got, err := f.Find(name)
			if err != nil || got.UUID() != uuid || got.Device.UUID != d.UUID {
				t.Fatalf("%q is %s, %v; want %s", name, got.UUID(), err, uuid)
			}
		}
		if got, err := f.Find(uuid + "0"); !errors.Is(err, cuda.ErrNotFound) {
			t.Fatalf("what is longer than a UUID is %s, %v", got.UUID(), err)
		}
	})
}
