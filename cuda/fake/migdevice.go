package fake

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

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
	m.GetUUIDFunc = func() (string, nvml.Return) {
		return answer(d, "nvmlDeviceGetUUID", func() string { return m.uuid })
	}
	m.GetGpuInstanceIdFunc = func() (int, nvml.Return) {
		return answer(d, "nvmlDeviceGetGpuInstanceId", func() int { return int(gi.Info.Id) })
	}
	m.GetComputeInstanceIdFunc = func() (int, nvml.Return) {
		return answer(d, "nvmlDeviceGetComputeInstanceId", func() int { return int(ci.Info.Id) })
	}
	m.GetDeviceHandleFromMigDeviceHandleFunc = func() (nvml.Device, nvml.Return) {
		return d, d.do("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", succeed)
	}
	m.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
		return answer(d, "nvmlDeviceGetAttributes", func() nvml.DeviceAttributes {
			return nvml.DeviceAttributes{
				MultiprocessorCount: gi.profile.Processors * ci.slices / gi.profile.Slices, GpuInstanceSliceCount: gi.profile.Slices,
				ComputeInstanceSliceCount: ci.slices, MemorySizeMB: gi.profile.MemoryMiB, SharedOfaCount: gi.profile.OFA,
			}
		})
	}
	m.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return answer(d, "nvmlDeviceGetMemoryInfo", func() nvml.Memory {
			total := gi.profile.MemoryMiB << 20
			return nvml.Memory{Total: total, Free: total}
		})
	}
	m.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return answer(d, "nvmlDeviceGetComputeRunningProcesses", func() []nvml.ProcessInfo { return d.running(m.uuid) })
	}
	m.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return nil, d.do("nvmlDeviceGetMPSComputeRunningProcesses", func() nvml.Return { return nvml.ERROR_NOT_SUPPORTED })
	}
	m.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{}, d.do("nvmlDeviceGetUtilizationRates", func() nvml.Return { return nvml.ERROR_NOT_SUPPORTED })
	}
	return m
}
