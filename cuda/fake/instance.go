package fake

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

type gpuInstance struct {
	*dgxa100.GpuInstance
	device  *Device
	profile *Profile
	compute []*computeInstance
	gone    bool
}

type computeInstance struct {
	*dgxa100.ComputeInstance
	instance *gpuInstance
	slices   uint32
	gone     bool
}

// computeSlices are NVML_COMPUTE_INSTANCE_PROFILE_* by number, and what they
// have.
var computeSlices = map[int]uint32{
	nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE: 1, nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE: 2, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE: 3,
	nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE: 4, nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE: 7,
}

// sorted returns the instances by place.
func (d *Device) sorted() []*gpuInstance {
	all := slices.Clone(d.instances)
	slices.SortFunc(all, func(a, b *gpuInstance) int {
		return int(a.Info.Placement.Start) - int(b.Info.Placement.Start)
	})
	return all
}

// add makes a GPU instance with the lowest free ID of its kind: drivers give the
// ID of a destroyed instance again.
func (d *Device) add(p *Profile, start uint32) *gpuInstance {
	id := p.FirstID
	for slices.ContainsFunc(d.instances, func(gi *gpuInstance) bool { return gi.Info.Id == id }) {
		id++
	}
	gi := &gpuInstance{device: d, profile: p, GpuInstance: dgxa100.NewGpuInstance(nvml.GpuInstanceInfo{
		Device: d, Id: id, ProfileId: p.ID, Placement: nvml.GpuInstancePlacement{Start: start, Size: p.Size},
	})}
	gi.set()
	d.instances = append(d.instances, gi)
	d.server.note("create instance %d profile %d at %d", id, p.ID, start)
	return gi
}

func (gi *gpuInstance) set() {
	d := gi.device
	gi.GetInfoFunc = func() (nvml.GpuInstanceInfo, nvml.Return) {
		return gi.Info, d.do("nvmlGpuInstanceGetInfo", gi.alive)
	}
	gi.DestroyFunc = func() nvml.Return { return d.privileged("nvmlGpuInstanceDestroy", gi.destroy) }
	gi.GetComputeInstanceProfileInfoFunc = func(number, engine int) (info nvml.ComputeInstanceProfileInfo, code nvml.Return) {
		code = d.do("nvmlGpuInstanceGetComputeInstanceProfileInfo", func() nvml.Return {
			n, ok := computeSlices[number]
			if number == nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1 { // the last is not the largest
				n, ok = 1, true
			}
			if !ok || n > gi.profile.Slices {
				return nvml.ERROR_NOT_SUPPORTED
			}
			info = nvml.ComputeInstanceProfileInfo{Id: uint32(number), SliceCount: n, InstanceCount: gi.profile.Slices / n}
			return nvml.SUCCESS
		})
		return info, code
	}
	gi.CreateComputeInstanceFunc = func(info *nvml.ComputeInstanceProfileInfo) (ci nvml.ComputeInstance, code nvml.Return) {
		code = d.privileged("nvmlGpuInstanceCreateComputeInstance", func() nvml.Return {
			n := computeSlices[int(info.Id)]
			if gi.gone || n == 0 {
				return nvml.ERROR_INVALID_ARGUMENT
			}
			if gi.used()+n > gi.profile.Slices {
				return nvml.ERROR_INSUFFICIENT_RESOURCES
			}
			ci = gi.add(info.Id, n)
			return nvml.SUCCESS
		})
		return ci, code
	}
	gi.GetComputeInstanceByIdFunc = func(id int) (ci nvml.ComputeInstance, code nvml.Return) {
		code = d.privileged("nvmlGpuInstanceGetComputeInstanceById", func() nvml.Return {
			for _, have := range gi.compute {
				if have.Info.Id == uint32(id) {
					ci = have
					return nvml.SUCCESS
				}
			}
			return nvml.ERROR_NOT_FOUND
		})
		return ci, code
	}
}

func (gi *gpuInstance) alive() nvml.Return {
	if gi.gone {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return nvml.SUCCESS
}

func (gi *gpuInstance) used() (n uint32) {
	for _, ci := range gi.compute {
		n += ci.slices
	}
	return n
}

func (gi *gpuInstance) destroy() nvml.Return {
	switch {
	case gi.gone:
		return nvml.ERROR_INVALID_ARGUMENT
	case len(gi.compute) > 0:
		return nvml.ERROR_IN_USE
	}
	gi.gone = true
	d := gi.device
	d.instances = slices.DeleteFunc(d.instances, func(have *gpuInstance) bool { return have == gi })
	d.server.note("destroy instance %d", gi.Info.Id)
	return nvml.SUCCESS
}

func (gi *gpuInstance) add(profile, n uint32) *computeInstance {
	id := uint32(0)
	for slices.ContainsFunc(gi.compute, func(ci *computeInstance) bool { return ci.Info.Id == id }) {
		id++
	}
	d := gi.device
	ci := &computeInstance{instance: gi, slices: n, ComputeInstance: dgxa100.NewComputeInstance(nvml.ComputeInstanceInfo{
		Device: d, GpuInstance: gi, Id: id, ProfileId: profile,
	})}
	ci.GetInfoFunc = func() (nvml.ComputeInstanceInfo, nvml.Return) {
		return ci.Info, d.do("nvmlComputeInstanceGetInfo", gi.alive)
	}
	ci.DestroyFunc = func() nvml.Return { return d.privileged("nvmlComputeInstanceDestroy", ci.destroy) }
	gi.compute = append(gi.compute, ci)
	d.server.note("create compute %d in %d", id, gi.Info.Id)
	return ci
}

func (ci *computeInstance) destroy() nvml.Return {
	gi := ci.instance
	switch {
	case ci.gone:
		return nvml.ERROR_INVALID_ARGUMENT
	case len(gi.device.running(ci.uuid())) > 0:
		return nvml.ERROR_IN_USE
	}
	ci.gone = true
	gi.compute = slices.DeleteFunc(gi.compute, func(have *computeInstance) bool { return have == ci })
	gi.device.server.note("destroy compute %d in %d", ci.Info.Id, gi.Info.Id)
	return nvml.SUCCESS
}

func (ci *computeInstance) uuid() string {
	return uuid("MIG", fmt.Sprint(ci.instance.device.UUID, "/", ci.instance.Info.Id, "/", ci.Info.Id))
}

// migDevice is a compute instance as CUDA sees it.
type migDevice struct {
	mock.Device
	uuid string
}

// migDevices returns the MIG devices by place.
func (d *Device) migDevices() (all []*migDevice) {
	for _, gi := range d.sorted() {
		for _, ci := range gi.compute {
			all = append(all, newMIGDevice(ci))
		}
	}
	return all
}

// newMIGDevice answers about a compute instance what drivers answer: no
// utilization, and memory and processes of its own.
func newMIGDevice(ci *computeInstance) *migDevice {
	gi, d := ci.instance, ci.instance.device
	m := &migDevice{uuid: ci.uuid()}
	m.GetUUIDFunc = getter(d, "nvmlDeviceGetUUID", func() string { return m.uuid })
	m.GetGpuInstanceIdFunc = getter(d, "nvmlDeviceGetGpuInstanceId", func() int { return int(gi.Info.Id) })
	m.GetComputeInstanceIdFunc = getter(d, "nvmlDeviceGetComputeInstanceId", func() int { return int(ci.Info.Id) })
	m.GetDeviceHandleFromMigDeviceHandleFunc = func() (nvml.Device, nvml.Return) {
		return d, d.do("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", succeed)
	}
	m.GetAttributesFunc = getter(d, "nvmlDeviceGetAttributes", func() nvml.DeviceAttributes {
		return nvml.DeviceAttributes{
			MultiprocessorCount: gi.profile.Processors * ci.slices / gi.profile.Slices, GpuInstanceSliceCount: gi.profile.Slices,
			ComputeInstanceSliceCount: ci.slices, MemorySizeMB: gi.profile.MemoryMiB, SharedOfaCount: gi.profile.OFA,
		}
	})
	m.GetMemoryInfoFunc = getter(d, "nvmlDeviceGetMemoryInfo", func() nvml.Memory {
		total := gi.profile.MemoryMiB << 20
		return nvml.Memory{Total: total, Free: total}
	})
	m.GetComputeRunningProcessesFunc = getter(d, "nvmlDeviceGetComputeRunningProcesses", func() []nvml.ProcessInfo { return d.running(m.uuid) })
	m.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return nil, d.do("nvmlDeviceGetMPSComputeRunningProcesses", func() nvml.Return { return nvml.ERROR_NOT_SUPPORTED })
	}
	m.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{}, d.do("nvmlDeviceGetUtilizationRates", func() nvml.Return { return nvml.ERROR_NOT_SUPPORTED })
	}
	return m
}
