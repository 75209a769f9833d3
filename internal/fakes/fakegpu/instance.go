package fakegpu

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// gpuInstance is a GPU instance, a part of a device.
type gpuInstance struct {
	*dgxa100.GpuInstance
	device  *device
	profile *profile
	compute []*computeInstance
}

// computeInstance is a compute instance of a GPU instance, which a process sees as a MIG device.
type computeInstance struct {
	*dgxa100.ComputeInstance
	slices uint32
	mig    *migDevice
}

// computeSlices maps NVML_COMPUTE_INSTANCE_PROFILE_* to the compute slices of the profile.
var computeSlices = map[int]uint32{
	nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE: 1, nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE: 2, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE: 3,
	nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE: 4, nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE: 7,
}

// sorted returns the instances in the order of their placements.
func (d *device) sorted() []*gpuInstance {
	return slices.SortedFunc(slices.Values(d.instances), func(a, b *gpuInstance) int {
		return int(a.Info.Placement.Start) - int(b.Info.Placement.Start)
	})
}

// add creates a GPU instance with the lowest free ID of its profile, because drivers reuse
// the IDs of destroyed instances.
func (d *device) add(p *profile, start uint32) *gpuInstance {
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

// set implements the calls about a GPU instance.
func (gi *gpuInstance) set() {
	gi.DestroyFunc = gi.destroy
	gi.GetComputeInstanceProfileInfoFunc = func(number, engine int) (info nvml.ComputeInstanceProfileInfo, code nvml.Return) {
		n := computeSlices[number]
		if number == nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1 { // so that the last profile is not the largest
			n = 1
		}
		if n == 0 || n > gi.profile.Slices {
			return info, nvml.ERROR_NOT_SUPPORTED
		}
		return nvml.ComputeInstanceProfileInfo{Id: uint32(number), SliceCount: n, InstanceCount: gi.profile.Slices / n}, nvml.SUCCESS
	}
	gi.CreateComputeInstanceFunc = func(info *nvml.ComputeInstanceProfileInfo) (nvml.ComputeInstance, nvml.Return) {
		n := computeSlices[int(info.Id)]
		used := n
		for _, ci := range gi.compute {
			used += ci.slices
		}
		switch {
		case n == 0:
			return nil, nvml.ERROR_INVALID_ARGUMENT
		case used > gi.profile.Slices:
			return nil, nvml.ERROR_INSUFFICIENT_RESOURCES
		}
		return gi.add(info.Id, n), nvml.SUCCESS
	}
	gi.GetComputeInstanceByIdFunc = func(id int) (nvml.ComputeInstance, nvml.Return) {
		for _, ci := range gi.compute {
			if ci.Info.Id == uint32(id) {
				return ci, nvml.SUCCESS
			}
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	gi.device.server.watch("nvmlGpuInstance", &gi.GpuInstance.GpuInstance, gi.refusal)
}

// refusal returns INVALID_ARGUMENT for an instance that was destroyed.
func (gi *gpuInstance) refusal(call string) nvml.Return {
	if !slices.Contains(gi.device.instances, gi) {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return gi.device.refusal(call)
}

// destroy destroys the instance, which must not have compute instances.
func (gi *gpuInstance) destroy() nvml.Return {
	if len(gi.compute) > 0 {
		return nvml.ERROR_IN_USE
	}
	d := gi.device
	d.instances = slices.DeleteFunc(d.instances, func(have *gpuInstance) bool { return have == gi })
	d.server.note("destroy instance %d", gi.Info.Id)
	return nvml.SUCCESS
}

// add creates a compute instance with the lowest free ID. It can be destroyed while no
// process runs in it.
func (gi *gpuInstance) add(profile, n uint32) *computeInstance {
	id := uint32(0)
	for slices.ContainsFunc(gi.compute, func(ci *computeInstance) bool { return ci.Info.Id == id }) {
		id++
	}
	d := gi.device
	ci := &computeInstance{slices: n, ComputeInstance: dgxa100.NewComputeInstance(nvml.ComputeInstanceInfo{
		Device: d, GpuInstance: gi, Id: id, ProfileId: profile,
	})}
	ci.mig = newMIGDevice(gi, ci)
	ci.DestroyFunc = func() nvml.Return {
		if len(d.running(ci.mig.uuid)) > 0 {
			return nvml.ERROR_IN_USE
		}
		gi.compute = slices.DeleteFunc(gi.compute, func(have *computeInstance) bool { return have == ci })
		d.server.note("destroy compute %d in %d", id, gi.Info.Id)
		return nvml.SUCCESS
	}
	d.server.watch("nvmlComputeInstance", &ci.ComputeInstance.ComputeInstance, gi.refusal)
	gi.compute = append(gi.compute, ci)
	d.server.note("create compute %d in %d", id, gi.Info.Id)
	return ci
}

// migDevice is a compute instance as CUDA sees it.
type migDevice struct {
	mock.Device
	uuid string
}

// migDevices returns the MIG devices in the order of their indices.
func (d *device) migDevices() (all []*migDevice) {
	for _, gi := range d.sorted() {
		for _, ci := range gi.compute {
			all = append(all, ci.mig)
		}
	}
	return all
}

// newMIGDevice returns the MIG device of a compute instance. As with real drivers, it has
// memory and processes of its own, but no utilization.
func newMIGDevice(gi *gpuInstance, ci *computeInstance) *migDevice {
	d, total := gi.device, gi.profile.MemoryMiB<<20
	m := &migDevice{uuid: uuid("MIG", fmt.Sprint(d.UUID, "/", gi.Info.Id, "/", ci.Info.Id))}
	m.GetUUIDFunc = always(m.uuid)
	m.GetGpuInstanceIdFunc = always(int(gi.Info.Id))
	m.GetComputeInstanceIdFunc = always(int(ci.Info.Id))
	m.GetDeviceHandleFromMigDeviceHandleFunc = always[nvml.Device](d)
	m.GetAttributesFunc = always(nvml.DeviceAttributes{
		GpuInstanceSliceCount: gi.profile.Slices, ComputeInstanceSliceCount: ci.slices,
		MemorySizeMB: gi.profile.MemoryMiB, SharedOfaCount: gi.profile.OFA,
	})
	m.GetMemoryInfoFunc = always(nvml.Memory{Total: total, Free: total})
	m.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return d.running(m.uuid), nvml.SUCCESS }
	m.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	m.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED }
	d.server.watch("nvmlDevice", &m.Device, d.refusal)
	return m
}
