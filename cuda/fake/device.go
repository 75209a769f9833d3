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
	uuid   string // names the device or MIG device it runs on
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

// getter is a call without arguments that returns a value.
func getter[T any](d *Device, call string, value func() T) func() (T, nvml.Return) {
	return func() (T, nvml.Return) { return answer(d, call, value) }
}

func (d *Device) setNames() {
	d.GetUUIDFunc = getter(d, "nvmlDeviceGetUUID", func() string { return d.UUID })
	d.GetNameFunc = getter(d, "nvmlDeviceGetName", func() string { return d.Name })
	d.GetIndexFunc = getter(d, "nvmlDeviceGetIndex", func() int { return d.Index })
	d.GetPciInfoFunc = getter(d, "nvmlDeviceGetPciInfo", func() (p nvml.PciInfo) {
		for i, c := range []byte(d.PciBusID) {
			p.BusId[i] = int8(c)
		}
		return p
	})
}

func (d *Device) setState() {
	d.GetMemoryInfoFunc = getter(d, "nvmlDeviceGetMemoryInfo", func() nvml.Memory { return d.MemoryInfo })
	d.GetComputeModeFunc = getter(d, "nvmlDeviceGetComputeMode", func() nvml.ComputeMode { return d.Mode })
	d.GetPersistenceModeFunc = getter(d, "nvmlDeviceGetPersistenceMode", func() nvml.EnableState { return nvml.FEATURE_ENABLED })
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		on, code := answer(d, "nvmlDeviceGetEccMode", func() nvml.EnableState { return nvml.FEATURE_ENABLED })
		return on, on, code
	}
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return answer(d, "nvmlDeviceGetTotalEccErrors", func() uint64 { return 0 })
	}
	d.GetComputeRunningProcessesFunc = getter(d, "nvmlDeviceGetComputeRunningProcesses", func() []nvml.ProcessInfo { return d.running("") })
	d.GetMPSComputeRunningProcessesFunc = getter(d, "nvmlDeviceGetMPSComputeRunningProcesses", func() []nvml.ProcessInfo { return nil })
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
	d.GetPowerUsageFunc = getter(d, "nvmlDeviceGetPowerUsage", func() uint32 { return 71_500 })
	d.GetEnforcedPowerLimitFunc = getter(d, "nvmlDeviceGetEnforcedPowerLimit", func() uint32 { return d.Model.PowerWatts * 1000 })
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) {
		return answer(d, "nvmlDeviceGetTemperature", func() uint32 { return 41 })
	}
	d.GetClockInfoFunc = func(t nvml.ClockType) (uint32, nvml.Return) {
		return answer(d, "nvmlDeviceGetClockInfo", func() uint32 { return 1000 + uint32(t) })
	}
	d.GetMaxClockInfoFunc = func(t nvml.ClockType) (uint32, nvml.Return) {
		return answer(d, "nvmlDeviceGetMaxClockInfo", func() uint32 { return 1980 + uint32(t) })
	}
	reasons := func() uint64 { return d.Reasons }
	d.GetCurrentClocksEventReasonsFunc = getter(d, "nvmlDeviceGetCurrentClocksEventReasons", reasons)
	d.GetCurrentClocksThrottleReasonsFunc = getter(d, "nvmlDeviceGetCurrentClocksThrottleReasons", reasons)
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

// setMIG gives the device what concerns its mode and its profiles.
func (d *Device) setMIG() {
	d.GetMigModeFunc = func() (int, int, nvml.Return) {
		code := d.do("nvmlDeviceGetMigMode", d.capable)
		return d.MigMode, d.pending, code
	}
	d.SetMigModeFunc = func(mode int) (activation, code nvml.Return) {
		code = d.privileged("nvmlDeviceSetMigMode", func() nvml.Return {
			activation = d.setMode(mode)
			return nvml.SUCCESS
		})
		return activation, code
	}
	d.GetGpuInstanceProfileInfoFunc = func(number int) (info nvml.GpuInstanceProfileInfo, code nvml.Return) {
		code = d.do("nvmlDeviceGetGpuInstanceProfileInfo", func() nvml.Return {
			p := d.Model.byNumber(number)
			if p == nil || d.NoMIG {
				return nvml.ERROR_NOT_SUPPORTED
			}
			info = p.info()
			return nvml.SUCCESS
		})
		return info, code
	}
	d.GetGpuInstancePossiblePlacementsFunc = func(info *nvml.GpuInstanceProfileInfo) (all []nvml.GpuInstancePlacement, code nvml.Return) {
		code = d.withProfile("nvmlDeviceGetGpuInstancePossiblePlacements", info, false, func(p *Profile) nvml.Return {
			all = p.placements()
			return nvml.SUCCESS
		})
		return all, code
	}
	d.GetGpuInstanceRemainingCapacityFunc = func(info *nvml.GpuInstanceProfileInfo) (n int, code nvml.Return) {
		code = d.withProfile("nvmlDeviceGetGpuInstanceRemainingCapacity", info, true, func(p *Profile) nvml.Return {
			n = d.room(p)
			return nvml.SUCCESS
		})
		return n, code
	}
}

func (d *Device) capable() nvml.Return {
	if d.NoMIG {
		return nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.SUCCESS
}

// privileged is do for calls that need root.
func (d *Device) privileged(call string, work func() nvml.Return) nvml.Return {
	return d.do(call, func() nvml.Return {
		switch {
		case d.NoMIG:
			return nvml.ERROR_NOT_SUPPORTED
		case d.server.Unprivileged:
			return nvml.ERROR_NO_PERMISSION
		}
		return work()
	})
}

// withProfile is privileged for calls about a profile, by its ID.
func (d *Device) withProfile(call string, info *nvml.GpuInstanceProfileInfo, needsMode bool, work func(*Profile) nvml.Return) nvml.Return {
	return d.privileged(call, func() nvml.Return {
		p := d.Model.byID(info.Id)
		if p == nil || needsMode && d.MigMode != nvml.DEVICE_MIG_ENABLE {
			return nvml.ERROR_NOT_SUPPORTED
		}
		return work(p)
	})
}

// setMode changes the mode if the GPU is idle and empty, else it is pending.
func (d *Device) setMode(mode int) nvml.Return {
	d.pending = mode
	d.server.note("mode %d", mode)
	switch {
	case mode == d.MigMode:
		return nvml.SUCCESS
	case len(d.processes) > 0, len(d.instances) > 0:
		return nvml.ERROR_IN_USE
	case d.NeedsReset:
		return nvml.ERROR_RESET_REQUIRED
	}
	d.MigMode = mode
	return nvml.SUCCESS
}

// free reports whether a profile may be placed, by slices and by count.
func (d *Device) free(p *Profile, start uint32) bool {
	count := uint32(0)
	for _, gi := range d.instances {
		at := gi.Info.Placement
		if start < at.Start+at.Size && at.Start < start+p.Size {
			return false
		}
		if gi.profile == p {
			count++
		}
	}
	return count < p.Max
}

// room returns how many instances of a profile could be created, one after the
// other, first places first.
func (d *Device) room(p *Profile) (n int) {
	end, count := uint32(0), uint32(0)
	for _, gi := range d.instances {
		if gi.profile == p {
			count++
		}
	}
	for _, start := range p.Starts {
		if start >= end && count < p.Max && d.free(p, start) {
			n, count, end = n+1, count+1, start+p.Size
		}
	}
	return n
}

// setInstances gives the device what concerns its instances.
func (d *Device) setInstances() {
	d.CreateGpuInstanceWithPlacementFunc = func(info *nvml.GpuInstanceProfileInfo, at *nvml.GpuInstancePlacement) (gi nvml.GpuInstance, code nvml.Return) {
		code = d.withProfile("nvmlDeviceCreateGpuInstanceWithPlacement", info, true, func(p *Profile) nvml.Return {
			if !slices.Contains(p.Starts, at.Start) || at.Size != p.Size {
				return nvml.ERROR_INVALID_ARGUMENT
			}
			if !d.free(p, at.Start) {
				return nvml.ERROR_INSUFFICIENT_RESOURCES
			}
			gi = d.add(p, at.Start)
			return nvml.SUCCESS
		})
		return gi, code
	}
	d.CreateGpuInstanceFunc = nil // a place is always given
	d.GetGpuInstancesFunc = func(info *nvml.GpuInstanceProfileInfo) (all []nvml.GpuInstance, code nvml.Return) {
		code = d.withProfile("nvmlDeviceGetGpuInstances", info, true, func(p *Profile) nvml.Return {
			for _, gi := range d.instances {
				if gi.profile == p {
					all = append(all, gi)
				}
			}
			return nvml.SUCCESS
		})
		return all, code
	}
	d.GetGpuInstanceByIdFunc = func(id int) (gi nvml.GpuInstance, code nvml.Return) {
		code = d.privileged("nvmlDeviceGetGpuInstanceById", func() nvml.Return {
			for _, have := range d.instances {
				if have.Info.Id == uint32(id) {
					gi = have
					return nvml.SUCCESS
				}
			}
			return nvml.ERROR_NOT_FOUND
		})
		return gi, code
	}
	d.GetMaxMigDeviceCountFunc = getter(d, "nvmlDeviceGetMaxMigDeviceCount", func() int { return 7 })
	d.GetMigDeviceHandleByIndexFunc = func(index int) (m nvml.Device, code nvml.Return) {
		code = d.do("nvmlDeviceGetMigDeviceHandleByIndex", func() nvml.Return {
			all := d.migDevices()
			if index >= len(all) {
				return nvml.ERROR_NOT_FOUND
			}
			m = all[index]
			return nvml.SUCCESS
		})
		return m, code
	}
}
