package cuda

import (
	"cmp"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxProcesses bounds how many processes of a device are told.
const maxProcesses = 1024

// Process computes on a device.
type Process struct {
	PID    int             `json:"pid"`
	Memory Reading[uint64] `json:"memory_bytes"`
}

// noMemory is what the driver answers where it cannot tell a process's memory.
const noMemory = ^uint64(0)

// processes returns who computes on a device or MIG device, by PID, MPS clients
// among them.
func (h *Host) processes(handle nvml.Device, subject string) Reading[[]Process] {
	own, code := handle.GetComputeRunningProcesses()
	if code != nvml.SUCCESS {
		return read[[]Process](nil, code, "nvmlDeviceGetComputeRunningProcesses", subject)
	}
	if h.symbols[symbolMPSProcesses] {
		// MIG devices and older GPUs may not tell; then the first list must do.
		if clients, code := handle.GetMPSComputeRunningProcesses(); code == nvml.SUCCESS {
			own = append(slices.Clone(own), clients...)
		}
	}
	return known(convertProcesses(own))
}

func convertProcesses(infos []nvml.ProcessInfo) []Process {
	all := make([]Process, 0, min(len(infos), maxProcesses))
	for _, info := range infos[:min(len(infos), maxProcesses)] {
		p := Process{PID: int(info.Pid)}
		if info.UsedGpuMemory != noMemory {
			p.Memory = known(info.UsedGpuMemory)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return slices.CompactFunc(all, func(a, b Process) bool { return a.PID == b.PID })
}
