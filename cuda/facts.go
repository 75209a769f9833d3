package cuda

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Facts are what a host says of its GPUs.
type Facts struct {
	Driver  string   `json:"driver"` // as "580.65.06"
	NVML    string   `json:"nvml"`
	CUDA    Version  `json:"cuda"` // the newest that the driver runs
	Devices []Device `json:"devices"`
}

// Facts reads all devices. A device that does not answer is in the list with a
// Fault, so that one broken GPU does not hide the others.
func (h *Host) Facts() (Facts, error) {
	done, err := h.use()
	if err != nil {
		return Facts{}, err
	}
	defer done()
	f, err := h.versions()
	if err != nil {
		return Facts{}, err
	}
	count, code := h.nvml.DeviceGetCount()
	if err := check(code, "nvmlDeviceGetCount", ""); err != nil {
		return Facts{}, err
	}
	for i := range min(count, maxDevices) {
		f.Devices = append(f.Devices, h.deviceAt(i))
	}
	return f, nil
}

func (h *Host) versions() (f Facts, err error) {
	var code nvml.Return
	f.Driver, code = h.nvml.SystemGetDriverVersion()
	if err := check(code, "nvmlSystemGetDriverVersion", ""); err != nil {
		return f, err
	}
	f.NVML, code = h.nvml.SystemGetNVMLVersion()
	if err := check(code, "nvmlSystemGetNVMLVersion", ""); err != nil {
		return f, err
	}
	number, code := h.nvml.SystemGetCudaDriverVersion()
	f.CUDA = cudaVersion(number)
	return f, check(code, "nvmlSystemGetCudaDriverVersion", "")
}

func (h *Host) deviceAt(index int) Device {
	device, code := h.nvml.DeviceGetHandleByIndex(index)
	if err := check(code, "nvmlDeviceGetHandleByIndex", fmt.Sprintf("GPU %d", index)); err != nil {
		return Device{Index: index, Fault: err}
	}
	return h.describe(device, index)
}

// Device reads one device anew, by its UUID.
func (h *Host) Device(uuid string) (Device, error) {
	done, err := h.use()
	if err != nil {
		return Device{}, err
	}
	defer done()
	handle, err := h.handle(uuid)
	if err != nil {
		return Device{}, err
	}
	index, code := handle.GetIndex()
	if err := check(code, "nvmlDeviceGetIndex", uuid); err != nil {
		return Device{}, err
	}
	d := h.describe(handle, index)
	return d, d.Fault
}
