package cuda

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// SetMIGMode turns the MIG mode of a GPU on or off. The driver may unbind and
// bind the idle GPU for it. Where that does not do, the change is pending and
// the error an ErrInUse or ErrReset.
func (h *Host) SetMIGMode(gpu string, on bool) error {
	done, err := h.use()
	if err != nil {
		return err
	}
	defer done()
	handle, err := h.handle(gpu)
	if err != nil {
		return err
	}
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	activation, code := handle.SetMigMode(mode)
	if err := check(code, "nvmlDeviceSetMigMode", gpu); err != nil {
		return err
	}
	return check(activation, "nvmlDeviceSetMigMode (activation)", gpu)
}

// CreateGPUInstance creates an instance of a profile at a place and returns its
// ID. After an error the instance may exist all the same.
func (h *Host) CreateGPUInstance(gpu string, p Profile, at Placement) (id uint32, err error) {
	done, err := h.use()
	if err != nil {
		return 0, err
	}
	defer done()
	handle, err := h.handle(gpu)
	if err != nil {
		return 0, err
	}
	subject := fmt.Sprintf("%s at %s on %s", p.Name, at, gpu)
	gi, code := handle.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: p.ID}, &nvml.GpuInstancePlacement{Start: uint32(at.Start), Size: uint32(at.Size)})
	if err := check(code, "nvmlDeviceCreateGpuInstanceWithPlacement", subject); err != nil {
		return 0, err
	}
	info, code := gi.GetInfo()
	return info.Id, check(code, "nvmlGpuInstanceGetInfo", subject)
}

// CreateComputeInstance creates the compute instance that covers a GPU instance
// and returns its ID. After an error it may exist all the same.
func (h *Host) CreateComputeInstance(gpu string, instance uint32) (id uint32, err error) {
	done, err := h.use()
	if err != nil {
		return 0, err
	}
	defer done()
	gi, subject, err := h.gpuInstance(gpu, instance)
	if err != nil {
		return 0, err
	}
	info, err := wholeProfile(gi, subject)
	if err != nil {
		return 0, err
	}
	ci, code := gi.CreateComputeInstance(&info)
	if err := check(code, "nvmlGpuInstanceCreateComputeInstance", subject); err != nil {
		return 0, err
	}
	made, code := ci.GetInfo()
	return made.Id, check(code, "nvmlComputeInstanceGetInfo", subject)
}

// wholeProfile returns the compute instance profile with the most slices: that
// of the GPU instance itself.
func wholeProfile(gi nvml.GpuInstance, subject string) (most nvml.ComputeInstanceProfileInfo, err error) {
	for number := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, code := gi.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if code == nvml.ERROR_NOT_SUPPORTED || code == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if err := check(code, "nvmlGpuInstanceGetComputeInstanceProfileInfo", subject); err != nil {
			return most, err
		}
		if info.SliceCount > most.SliceCount {
			most = info
		}
	}
	if most.SliceCount == 0 {
		return most, &Fault{Call: "nvmlGpuInstanceGetComputeInstanceProfileInfo", Subject: subject, Code: nvml.ERROR_NOT_SUPPORTED}
	}
	return most, nil
}

// DestroyComputeInstance destroys a compute instance in which nothing runs.
func (h *Host) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	done, err := h.use()
	if err != nil {
		return err
	}
	defer done()
	gi, subject, err := h.gpuInstance(gpu, instance)
	if err != nil {
		return err
	}
	ci, code := gi.GetComputeInstanceById(int(compute))
	if err := check(code, "nvmlGpuInstanceGetComputeInstanceById", subject); err != nil {
		return err
	}
	return check(ci.Destroy(), "nvmlComputeInstanceDestroy", fmt.Sprintf("compute instance %d in %s", compute, subject))
}

// DestroyGPUInstance destroys a GPU instance that has no compute instance.
func (h *Host) DestroyGPUInstance(gpu string, instance uint32) error {
	done, err := h.use()
	if err != nil {
		return err
	}
	defer done()
	gi, subject, err := h.gpuInstance(gpu, instance)
	if err != nil {
		return err
	}
	return check(gi.Destroy(), "nvmlGpuInstanceDestroy", subject)
}

func (h *Host) gpuInstance(gpu string, id uint32) (nvml.GpuInstance, string, error) {
	subject := fmt.Sprintf("GPU instance %d on %s", id, gpu)
	handle, err := h.handle(gpu)
	if err != nil {
		return nil, subject, err
	}
	gi, code := handle.GetGpuInstanceById(int(id))
	return gi, subject, check(code, "nvmlDeviceGetGpuInstanceById", subject)
}
