package fakegpu

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// device is a GPU. Its fields must be set before the first call.
type device struct {
	*dgxa100.Device
	Model Model
	// NeedsReset defers a change of the MIG mode to a reset, as on GPUs that are passed
	// through to a virtual machine.
	NeedsReset bool
	// NoMIG makes it a GPU without MIG.
	NoMIG bool
	// Mode is the compute mode.
	Mode nvml.ComputeMode
	// Reasons are the reasons for low clocks.
	Reasons   uint64
	server    *Server
	pending   int
	lost      bool
	instances []*gpuInstance
	processes []process
}

// process is a process on the device or MIG device with the UUID.
type process struct {
	uuid   string
	pid    int
	memory uint64
}

// newDevice returns the GPU of an index. MIG is off.
func newDevice(s *Server, m Model, index int) *device {
	d := &device{Device: dgxa100.NewDevice(index), Model: m, server: s, Mode: nvml.COMPUTEMODE_DEFAULT}
	d.UUID = uuid("GPU", fmt.Sprint("device ", index))
	d.Name = m.Name
	d.PciBusID = fmt.Sprintf("00000000:%02X:00.0", 0x3b+index)
	d.CudaComputeCapability = dgxa100.CudaComputeCapability{Major: m.Major, Minor: m.Minor}
	d.MemoryInfo = nvml.Memory{Total: m.MemoryMiB << 20, Free: m.MemoryMiB << 20}
	d.setReadings()
	d.setMIG()
	d.setInstances()
	s.watch("nvmlDevice", &d.Device.Device, d.refusal)
	return d
}

// privileged lists the calls that need root, and a GPU that supports MIG.
var privileged = []string{
	"nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstancePossiblePlacements", "nvmlDeviceGetGpuInstanceRemainingCapacity",
	"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlDeviceGetGpuInstances", "nvmlDeviceGetGpuInstanceById",
	"nvmlGpuInstanceDestroy", "nvmlGpuInstanceCreateComputeInstance", "nvmlGpuInstanceGetComputeInstanceById", "nvmlComputeInstanceDestroy",
}

// refusal returns the code with which every call of this kind fails at present.
func (d *device) refusal(call string) nvml.Return {
	needsMIG := slices.Contains(privileged, call)
	switch {
	case d.lost:
		return nvml.ERROR_GPU_IS_LOST
	case d.NoMIG && (needsMIG || call == "nvmlDeviceGetMigMode" || call == "nvmlDeviceGetGpuInstanceProfileInfo"):
		return nvml.ERROR_NOT_SUPPORTED
	case d.server.Unprivileged && needsMIG:
		return nvml.ERROR_NO_PERMISSION
	}
	return nvml.SUCCESS
}

// always returns a call that always returns a value.
func always[T any](value T) func() (T, nvml.Return) {
	return func() (T, nvml.Return) { return value, nvml.SUCCESS }
}

// setReadings implements the calls that only read.
func (d *device) setReadings() {
	d.GetPciInfoFunc = func() (p nvml.PciInfo, code nvml.Return) {
		for i, c := range []byte(d.PciBusID) {
			p.BusId[i] = int8(c)
		}
		return p, nvml.SUCCESS
	}
	d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return d.Mode, nvml.SUCCESS }
	d.GetPersistenceModeFunc = always(nvml.FEATURE_ENABLED)
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 0, nvml.SUCCESS }
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return d.running(""), nvml.SUCCESS }
	d.GetMPSComputeRunningProcessesFunc = always[[]nvml.ProcessInfo](nil)
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		if d.MigMode == nvml.DEVICE_MIG_ENABLE {
			return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
		}
		return nvml.Utilization{Gpu: 37, Memory: 12}, nvml.SUCCESS
	}
	d.GetPowerUsageFunc = always(uint32(71_500))
	d.GetEnforcedPowerLimitFunc = always(d.Model.PowerWatts * 1000)
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 41, nvml.SUCCESS }
	d.GetClockInfoFunc = func(t nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(t), nvml.SUCCESS }
	d.GetMaxClockInfoFunc = func(t nvml.ClockType) (uint32, nvml.Return) { return 1980 + uint32(t), nvml.SUCCESS }
	d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return d.Reasons, nvml.SUCCESS }
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return d.Reasons, nvml.SUCCESS }
}

// running returns the processes on a MIG device, or with "" those on the whole device.
func (d *device) running(uuid string) (all []nvml.ProcessInfo) {
	for _, p := range d.processes {
		if uuid == "" || p.uuid == uuid {
			all = append(all, nvml.ProcessInfo{Pid: uint32(p.pid), UsedGpuMemory: p.memory})
		}
	}
	return all
}

// StartProcess starts a process on a device or MIG device.
func (s *Server) StartProcess(uuid string, pid int, memoryBytes uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.Devices {
		if d.UUID == uuid || slices.ContainsFunc(d.migDevices(), func(m *migDevice) bool { return m.uuid == uuid }) {
			d.processes = append(d.processes, process{uuid, pid, memoryBytes})
			return nil
		}
	}
	return fmt.Errorf("no device %s", uuid)
}

// StopProcess ends a process.
func (s *Server) StopProcess(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.Devices {
		d.processes = slices.DeleteFunc(d.processes, func(p process) bool { return p.pid == pid })
	}
}

// Lose makes a device fail as if it had fallen off the bus.
func (s *Server) Lose(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Devices[index].lost = true
}

// Reset resets a GPU: the pending mode takes effect, and instances and processes are gone.
func (s *Server) Reset(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.Devices[index]
	d.MigMode, d.instances, d.processes, d.lost = d.pending, nil, nil, false
}

// setMIG implements the calls for the MIG mode, profiles and placements.
func (d *device) setMIG() {
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return d.MigMode, d.pending, nvml.SUCCESS }
	d.SetMigModeFunc = func(mode int) (nvml.Return, nvml.Return) { return d.setMode(mode), nvml.SUCCESS }
	d.GetGpuInstanceProfileInfoFunc = func(number int) (info nvml.GpuInstanceProfileInfo, code nvml.Return) {
		if p := d.Model.find(func(p profile) bool { return p.Number == number }); p != nil {
			return p.info(), nvml.SUCCESS
		}
		return info, nvml.ERROR_NOT_SUPPORTED
	}
	d.GetGpuInstancePossiblePlacementsFunc = func(info *nvml.GpuInstanceProfileInfo) (all []nvml.GpuInstancePlacement, code nvml.Return) {
		p := d.Model.byID(info.Id)
		if p == nil {
			return nil, nvml.ERROR_NOT_SUPPORTED
		}
		for _, start := range p.Starts {
			all = append(all, nvml.GpuInstancePlacement{Start: start, Size: p.Size})
		}
		return all, nvml.SUCCESS
	}
	d.GetGpuInstanceRemainingCapacityFunc = func(info *nvml.GpuInstanceProfileInfo) (n int, code nvml.Return) {
		if p := d.inMode(info); p != nil {
			return d.room(p), nvml.SUCCESS
		}
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
}

// inMode returns a profile by its ID, or nil if it does not exist or the MIG mode is off.
func (d *device) inMode(info *nvml.GpuInstanceProfileInfo) *profile {
	if d.MigMode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	return d.Model.byID(info.Id)
}

// setMode changes the mode if the GPU is idle and has no instances. Otherwise the change is
// pending.
func (d *device) setMode(mode int) nvml.Return {
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

// free reports whether the slices at start are free and the profile's limit is not reached.
func (d *device) free(p *profile, start uint32) bool {
	return d.count(p) < p.Max && !slices.ContainsFunc(d.instances, func(gi *gpuInstance) bool {
		at := gi.Info.Placement
		return start < at.Start+at.Size && at.Start < start+p.Size
	})
}

// count returns how many instances of a profile there are.
func (d *device) count(p *profile) (n uint32) {
	for _, gi := range d.instances {
		if gi.profile == p {
			n++
		}
	}
	return n
}

// room returns how many more instances of a profile could be created, lowest placements
// first.
func (d *device) room(p *profile) (n int) {
	end, count := uint32(0), d.count(p)
	for _, start := range p.Starts {
		if start >= end && count < p.Max && d.free(p, start) {
			n, count, end = n+1, count+1, start+p.Size
		}
	}
	return n
}

// setInstances implements the calls that create and list instances.
func (d *device) setInstances() {
	d.CreateGpuInstanceWithPlacementFunc = func(info *nvml.GpuInstanceProfileInfo, at *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
		p := d.inMode(info)
		switch {
		case p == nil:
			return nil, nvml.ERROR_NOT_SUPPORTED
		case !slices.Contains(p.Starts, at.Start) || at.Size != p.Size:
			return nil, nvml.ERROR_INVALID_ARGUMENT
		case !d.free(p, at.Start):
			return nil, nvml.ERROR_INSUFFICIENT_RESOURCES
		}
		return d.add(p, at.Start), nvml.SUCCESS
	}
	d.CreateGpuInstanceFunc = nil // overlapd always gives a placement
	d.GetGpuInstancesFunc = func(info *nvml.GpuInstanceProfileInfo) (all []nvml.GpuInstance, code nvml.Return) {
		p := d.inMode(info)
		if p == nil {
			return nil, nvml.ERROR_NOT_SUPPORTED
		}
		for _, gi := range d.instances {
			if gi.profile == p {
				all = append(all, gi)
			}
		}
		return all, nvml.SUCCESS
	}
	d.GetGpuInstanceByIdFunc = func(id int) (nvml.GpuInstance, nvml.Return) {
		for _, gi := range d.instances {
			if gi.Info.Id == uint32(id) {
				return gi, nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	d.GetMaxMigDeviceCountFunc = always(7)
	d.GetMigDeviceHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		all := d.migDevices()
		if index >= len(all) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return all[index], nvml.SUCCESS
	}
}
