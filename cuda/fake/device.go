package fake

import (
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// Device is a GPU. Its fields are set before the first call.
type Device struct {
	*dgxa100.Device
	Model Model
	// NeedsReset makes a change of the MIG mode wait for a reset, as on GPUs
	// passed through to a virtual machine.
	NeedsReset bool
	// NoMIG makes it a GPU without MIG.
	NoMIG bool
	// Mode is the compute mode.
	Mode nvml.ComputeMode
	// Reasons are why its clocks are low.
	Reasons uint64

	server    *Server
	pending   int
	lost      bool
	instances []*gpuInstance
	processes []process
}

type process struct {
	uuid   string // of the device or MIG device it runs on
	pid    int
	memory uint64
}

func newDevice(s *Server, m Model, index int) *Device {
	d := &Device{Device: dgxa100.NewDevice(index), Model: m, server: s, Mode: nvml.COMPUTEMODE_DEFAULT}
	d.UUID = uuid("GPU", fmt.Sprint("device ", index))
	d.Name = m.Name
	d.PciBusID = fmt.Sprintf("00000000:%02X:00.0", 0x3b+index)
	d.CudaComputeCapability = dgxa100.CudaComputeCapability{Major: m.Major, Minor: m.Minor}
	d.MemoryInfo = nvml.Memory{Total: m.MemoryMiB << 20, Free: m.MemoryMiB << 20}
	d.setNames()
	d.setState()
	d.setReadings()
	d.setMIG()
	d.setInstances()
	return d
}

// do answers a call about the device, which fails when it is lost.
func (d *Device) do(call string, work func() nvml.Return) nvml.Return {
	return d.server.do(call, func() nvml.Return {
		if d.lost {
			return nvml.ERROR_GPU_IS_LOST
		}
		return work()
	})
}

// answer returns a value with the answer of a call.
func answer[T any](d *Device, call string, value func() T) (v T, code nvml.Return) {
	code = d.do(call, func() nvml.Return { v = value(); return nvml.SUCCESS })
	return v, code
}

func (d *Device) setNames() {
	d.GetUUIDFunc = func() (string, nvml.Return) {
		return answer(d, "nvmlDeviceGetUUID", func() string { return d.UUID })
	}
	d.GetNameFunc = func() (string, nvml.Return) {
		return answer(d, "nvmlDeviceGetName", func() string { return d.Name })
	}
	d.GetIndexFunc = func() (int, nvml.Return) {
		return answer(d, "nvmlDeviceGetIndex", func() int { return d.Index })
	}
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		return answer(d, "nvmlDeviceGetPciInfo", func() (p nvml.PciInfo) {
			for i, c := range []byte(d.PciBusID) {
				p.BusId[i] = int8(c)
			}
			return p
		})
	}
}

func (d *Device) setState() {
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return answer(d, "nvmlDeviceGetMemoryInfo", func() nvml.Memory { return d.MemoryInfo })
	}
	d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) {
		return answer(d, "nvmlDeviceGetComputeMode", func() nvml.ComputeMode { return d.Mode })
	}
	d.GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) {
		return answer(d, "nvmlDeviceGetPersistenceMode", func() nvml.EnableState { return nvml.FEATURE_ENABLED })
	}
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		on, code := answer(d, "nvmlDeviceGetEccMode", func() nvml.EnableState { return nvml.FEATURE_ENABLED })
		return on, on, code
	}
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return answer(d, "nvmlDeviceGetTotalEccErrors", func() uint64 { return 0 })
	}
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return answer(d, "nvmlDeviceGetComputeRunningProcesses", func() []nvml.ProcessInfo { return d.running("") })
	}
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return answer(d, "nvmlDeviceGetMPSComputeRunningProcesses", func() []nvml.ProcessInfo { return nil })
	}
}

func (d *Device) setReadings() {
	d.GetUtilizationRatesFunc = func() (u nvml.Utilization, code nvml.Return) {
		code = d.do("nvmlDeviceGetUtilizationRates", func() nvml.Return {
			if d.MigMode == nvml.DEVICE_MIG_ENABLE {
				return nvml.ERROR_NOT_SUPPORTED
			}
			u.Gpu, u.Memory = 37, 12
			return nvml.SUCCESS
		})
		return u, code
	}
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) {
		return answer(d, "nvmlDeviceGetPowerUsage", func() uint32 { return 71_500 })
	}
	d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) {
		return answer(d, "nvmlDeviceGetEnforcedPowerLimit", func() uint32 { return d.Model.PowerWatts * 1000 })
	}
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) {
		return answer(d, "nvmlDeviceGetTemperature", func() uint32 { return 41 })
	}
	d.GetClockInfoFunc = func(t nvml.ClockType) (uint32, nvml.Return) {
		return answer(d, "nvmlDeviceGetClockInfo", func() uint32 { return 1000 + uint32(t) })
	}
	d.GetMaxClockInfoFunc = func(t nvml.ClockType) (uint32, nvml.Return) {
		return answer(d, "nvmlDeviceGetMaxClockInfo", func() uint32 { return 1980 + uint32(t) })
	}
	reasons := func(call string) func() (uint64, nvml.Return) {
		return func() (uint64, nvml.Return) { return answer(d, call, func() uint64 { return d.Reasons }) }
	}
	d.GetCurrentClocksEventReasonsFunc = reasons("nvmlDeviceGetCurrentClocksEventReasons")
	d.GetCurrentClocksThrottleReasonsFunc = reasons("nvmlDeviceGetCurrentClocksThrottleReasons")
}

// running returns the processes on a MIG device, or all.
func (d *Device) running(uuid string) (all []nvml.ProcessInfo) {
	for _, p := range d.processes {
		if uuid == "" || p.uuid == uuid {
			all = append(all, nvml.ProcessInfo{Pid: uint32(p.pid), UsedGpuMemory: p.memory})
		}
	}
	return all
}

// StartProcess puts a process on a device or MIG device.
func (s *Server) StartProcess(uuid string, pid int, memoryBytes uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lookup(uuid) == nil {
		return fmt.Errorf("no device %s", uuid)
	}
	for _, d := range s.Devices {
		if d.UUID == uuid || slices.ContainsFunc(d.migDevices(), func(m *migDevice) bool { return m.uuid == uuid }) {
			d.processes = append(d.processes, process{uuid, pid, memoryBytes})
		}
	}
	return nil
}

// StopProcess ends a process.
func (s *Server) StopProcess(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.Devices {
		d.processes = slices.DeleteFunc(d.processes, func(p process) bool { return p.pid == pid })
	}
}

// Lose makes a device fall off the bus.
func (s *Server) Lose(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Devices[index].lost = true
}

// Reset does what a reset of the GPU does: the pending mode comes, instances go.
func (s *Server) Reset(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.Devices[index]
	d.MigMode, d.instances, d.processes, d.lost = d.pending, nil, nil, false
}

func (d *Device) describe(b *strings.Builder) {
	fmt.Fprintf(b, "GPU %d mode %d pending %d\n", d.Index, d.MigMode, d.pending)
	for _, gi := range d.sorted() {
		fmt.Fprintf(b, "  instance %d profile %d at %d:%d", gi.Info.Id, gi.Info.ProfileId, gi.Info.Placement.Start, gi.Info.Placement.Size)
		for _, ci := range gi.compute {
			fmt.Fprintf(b, " compute %d profile %d", ci.Info.Id, ci.Info.ProfileId)
		}
		b.WriteByte('\n')
	}
}
