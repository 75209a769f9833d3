package cuda_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

func TestOpenWithoutDriver(t *testing.T) {
	for code, is := range map[nvml.Return]error{
		nvml.ERROR_LIBRARY_NOT_FOUND:       cuda.ErrNoDriver,
		nvml.ERROR_DRIVER_NOT_LOADED:       cuda.ErrNoDriver,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: cuda.ErrMismatch,
		nvml.ERROR_NO_PERMISSION:           cuda.ErrPermission,
	} {
		s := fakegpu.New()
		s.Fail("nvmlInit", 0, 1, code)
		if _, err := cuda.Open(s); !errors.Is(err, is) {
			t.Errorf("%v: got %v", code, err)
		}
	}
}

// TestOpenThisHost opens the real library, wherever the test runs.
func TestOpenThisHost(t *testing.T) {
	h, err := cuda.Open(nil)
	if err != nil {
		if !errors.Is(err, cuda.ErrNoDriver) && !errors.Is(err, cuda.ErrMismatch) || !strings.Contains(err.Error(), "install") && !strings.Contains(err.Error(), "reboot") {
			t.Errorf("got %v", err)
		}
		return
	}
	if f, err := h.Facts(); err != nil || f.Driver == "" {
		t.Errorf("%v, %+v", err, f)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func TestClosed(t *testing.T) {
	s := fakegpu.New()
	h := open(t, s)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	calls := s.Calls()
	_, sample := h.Sample(s.Devices[0].UUID)
	_, list := h.Facts()
	for _, err := range []error{sample, list, h.SetMIGMode(s.Devices[0].UUID, true), h.DestroyGPUInstance(s.Devices[0].UUID, 1)} {
		if !errors.Is(err, cuda.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
	if err := h.Close(); err != nil || s.Calls() != calls {
		t.Errorf("%v, and the library was called", err)
	}
}

// TestFaults holds the table to the header's codes, and every sentence to a
// remedy and a sentinel.
func TestFaults(t *testing.T) {
	sentinels := []error{cuda.ErrNoDriver, cuda.ErrMismatch, cuda.ErrClosed, cuda.ErrLost, cuda.ErrReset, cuda.ErrNotFound,
		cuda.ErrPermission, cuda.ErrUnsupported, cuda.ErrInUse, cuda.ErrResources, cuda.ErrDriver}
	codes := []nvml.Return{nvml.ERROR_UNKNOWN, 555}
	for code := nvml.ERROR_UNINITIALIZED; code <= nvml.ERROR_RESET_TYPE_NOT_SUPPORTED; code++ {
		codes = append(codes, code)
	}
	seen := map[string]bool{}
	for _, code := range codes {
		f := &cuda.Fault{Call: "nvmlDoThis", Subject: "GPU-1", Code: code}
		text := f.Error()
		if !strings.HasPrefix(text, "nvmlDoThis of GPU-1: ") || !strings.Contains(text, "; ") || seen[text] {
			t.Errorf("%d: %s", code, text)
		}
		seen[text] = true
		if known := !strings.Contains(text, "does not know"); known != (code != 555) {
			t.Errorf("%d: %s", code, text)
		}
		n := 0
		for _, s := range sentinels {
			if errors.Is(f, s) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d is %d sentinels", code, n)
		}
	}
}

// TestFaultTableInDocs holds the table that people read to the one in use.
func TestFaultTableInDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/gpu-errors.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), cuda.FaultTable()) {
		t.Errorf("docs/gpu-errors.md does not hold this table:\n%s", cuda.FaultTable())
	}
}

func TestPartition(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	h := open(t, s)
	gpu := s.Devices[0].UUID
	before := s.State()
	if err := h.SetMIGMode(gpu, true); err != nil {
		t.Fatal(err)
	}
	p, _ := facts(t, h).Devices[0].MIG.Profile("2g.20gb")
	if _, err := h.CreateGPUInstance(gpu, p, cuda.Placement{Start: 1, Size: 2}); !errors.Is(err, cuda.ErrDriver) {
		t.Errorf("at 1: %v", err)
	}
	gi, err := h.CreateGPUInstance(gpu, p, cuda.Placement{Start: 2, Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.CreateGPUInstance(gpu, p, cuda.Placement{Start: 2, Size: 2}); !errors.Is(err, cuda.ErrResources) {
		t.Errorf("twice: %v", err)
	}
	ci, err := h.CreateComputeInstance(gpu, gi)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.CreateComputeInstance(gpu, gi); !errors.Is(err, cuda.ErrResources) {
		t.Errorf("twice: %v", err)
	}
	if err := h.DestroyGPUInstance(gpu, gi); !errors.Is(err, cuda.ErrInUse) {
		t.Errorf("with a compute instance: %v", err)
	}
	uuid := facts(t, h).Devices[0].Instances[0].UUID
	if err := s.StartProcess(uuid, 5, 1); err != nil {
		t.Fatal(err)
	}
	if err := h.DestroyComputeInstance(gpu, gi, ci); !errors.Is(err, cuda.ErrInUse) {
		t.Errorf("with a process: %v", err)
	}
	s.StopProcess(5)
	for _, err := range []error{h.DestroyComputeInstance(gpu, gi, ci), h.DestroyGPUInstance(gpu, gi), h.SetMIGMode(gpu, false)} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := h.DestroyGPUInstance(gpu, gi); !errors.Is(err, cuda.ErrNotFound) {
		t.Errorf("gone: %v", err)
	}
	if s.State() != before {
		t.Error(s.State())
	}
}

func TestSetMIGModePending(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	s.Devices[0].NeedsReset = true
	h := open(t, s)
	if err := h.SetMIGMode(s.Devices[0].UUID, true); !errors.Is(err, cuda.ErrReset) {
		t.Errorf("got %v", err)
	}
	if d := facts(t, h).Devices[0]; d.MIG.Enabled || !d.MIG.Pending {
		t.Errorf("%+v", d.MIG)
	}
	s.Reset(0)
	if d := facts(t, h).Devices[0]; !d.MIG.Enabled || d.MIG.Pending {
		t.Errorf("%+v", d.MIG)
	}
}
