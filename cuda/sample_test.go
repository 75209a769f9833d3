package cuda_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

func TestSample(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	s.Devices[0].Reasons = nvml.ClocksEventReasonSwPowerCap | nvml.ClocksEventReasonGpuIdle
	h := open(t, s)
	calls := s.Calls()
	got, err := h.Sample(s.Devices[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Calls() - calls; n > 14 {
		t.Errorf("%d calls", n)
	}
	if u := got.Utilization.Value; u != (cuda.Utilization{GPU: 37, Memory: 12}) || got.Power.Value != 71.5 || got.PowerLimit.Value != 700 || got.Temperature.Value != 41 {
		t.Errorf("%+v", got)
	}
	if got.SMClock.Value != 1001 || got.MaxSMClock.Value != 1981 || got.MemoryClock.Value != 1002 || got.Parent != "" {
		t.Errorf("%+v", got)
	}
	if r := got.ClockReasons.Value; r != "power limit, idle" || !r.Throttled() {
		t.Errorf("reasons %v", r)
	}
}

// TestSampleOfInstance has its own memory and processes, the GPU's power, and no
// utilization.
func TestSampleOfInstance(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	s.SetMIG(0, true)
	place(t, s, 9, 4, 3)
	h := open(t, s)
	uuid := facts(t, h).Devices[0].Instances[0].UUID
	if err := s.StartProcess(uuid, 11, 5); err != nil {
		t.Fatal(err)
	}
	got, err := h.Sample(uuid)
	if err != nil {
		t.Fatal(err)
	}
	if got.Utilization.Known || !errors.Is(got.Utilization.Err, cuda.ErrUnsupported) {
		t.Errorf("utilization %+v", got.Utilization)
	}
	if got.Parent != s.Devices[0].UUID || got.Memory.Value.Total != 40448<<20 || !got.Power.Known || len(got.Processes.Value) != 1 {
		t.Errorf("%+v", got)
	}
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `"utilization":null`) || !strings.Contains(string(text), `"power_watts":71.5`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestSampleReadings fails every call: the reading is unknown, or the error is
// returned.
func TestSampleReadings(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	h := open(t, s)
	good, err := h.Sample(s.Devices[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(good)
	calls := s.Calls()
	if _, err := h.Sample(s.Devices[0].UUID); err != nil {
		t.Fatal(err)
	}
	calls = s.Calls() - calls
	unknown := 0
	for n := range calls {
		s.Fail("", n, 1, nvml.ERROR_NOT_SUPPORTED)
		got, err := h.Sample(s.Devices[0].UUID)
		s.Mend()
		text, _ := json.Marshal(got)
		if err == nil && strings.Contains(string(text), "null") {
			unknown++
		} else if err == nil && string(text) != string(before) {
			t.Errorf("call %d: %s", n, text)
		}
	}
	if unknown != 10 {
		t.Errorf("%d readings became unknown", unknown)
	}
}

func TestSampleOfLostGPU(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	h := open(t, s)
	s.Lose(0)
	if _, err := h.Sample(s.Devices[0].UUID); !errors.Is(err, cuda.ErrLost) {
		t.Errorf("got %v", err)
	}
	if _, err := h.Sample("GPU-no"); !errors.Is(err, cuda.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// TestClockReasonsByName asks as the driver can be asked.
func TestClockReasonsByName(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	s.Missing["nvmlDeviceGetCurrentClocksEventReasons"] = true
	s.Fail("nvmlDeviceGetCurrentClocksEventReasons", 0, -1, nvml.ERROR_UNKNOWN)
	if got, err := open(t, s).Sample(s.Devices[0].UUID); err != nil || !got.ClockReasons.Known {
		t.Errorf("%v, %+v", err, got.ClockReasons)
	}
	s.Missing["nvmlDeviceGetCurrentClocksThrottleReasons"] = true
	got, err := open(t, s).Sample(s.Devices[0].UUID)
	if err != nil || got.ClockReasons.Known || !errors.Is(got.ClockReasons.Err, cuda.ErrUnsupported) {
		t.Errorf("%v, %+v", err, got.ClockReasons)
	}
}
