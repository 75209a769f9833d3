package cuda_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

// tellProcesses has a device tell its own processes and its MPS clients.
func tellProcesses(s *fakegpu.Server, own, clients []nvml.ProcessInfo) {
	d := s.Devices[0]
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return own, nvml.SUCCESS }
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return clients, nvml.SUCCESS }
}

// TestProcesses tells each process once, by PID, and no memory where the driver
// has none to tell.
func TestProcesses(t *testing.T) {
	s := fakegpu.New()
	tellProcesses(s, []nvml.ProcessInfo{{Pid: 30, UsedGpuMemory: 3}, {Pid: 10, UsedGpuMemory: ^uint64(0)}},
		[]nvml.ProcessInfo{{Pid: 20, UsedGpuMemory: 0}, {Pid: 30, UsedGpuMemory: 3}})
	got := facts(t, open(t, s)).Devices[0].Processes
	want := []cuda.Process{
		{PID: 10},
		{PID: 20, Memory: cuda.Reading[uint64]{Value: 0, Known: true}},
		{PID: 30, Memory: cuda.Reading[uint64]{Value: 3, Known: true}},
	}
	if diff := cmp.Diff(want, got.Value); diff != "" || !got.Known {
		t.Error(diff)
	}
}

// TestProcessesWithoutMPS does not call what the driver does not have.
func TestProcessesWithoutMPS(t *testing.T) {
	s := fakegpu.New()
	tellProcesses(s, []nvml.ProcessInfo{{Pid: 1}}, nil)
	s.Devices[0].GetMPSComputeRunningProcessesFunc = nil // to call it would panic
	s.Missing["nvmlDeviceGetMPSComputeRunningProcesses"] = true
	if got := facts(t, open(t, s)).Devices[0].Processes; !got.Known || len(got.Value) != 1 {
		t.Errorf("%+v", got)
	}
}
