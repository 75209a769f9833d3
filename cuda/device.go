package cuda

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Memory is in bytes.
type Memory struct {
	Total uint64 `json:"total_bytes"`
	Free  uint64 `json:"free_bytes"`
	Used  uint64 `json:"used_bytes"`
}

// Device is a GPU.
type Device struct {
	Index      int     `json:"index"` // NVML's, in the order of PCI addresses
	UUID       string  `json:"uuid"`
	PCI        string  `json:"pci"` // as "00000000:3B:00.0"
	Name       string  `json:"name"`
	Capability Version `json:"capability"`

	Memory      Reading[Memory]      `json:"memory"`
	PowerLimit  Reading[float64]     `json:"power_limit_watts"`
	ComputeMode Reading[ComputeMode] `json:"compute_mode"`
	Persistence Reading[bool]        `json:"persistence"`
	ECC         Reading[ECC]         `json:"ecc"`
	Processes   Reading[[]Process]   `json:"processes"`

	MIG       MIG        `json:"mig"`
	Instances []Instance `json:"instances"`

	// Fault is why the device could not be read to the end; nil for a device
	// that answers.
	Fault error `json:"-"`
}

// String names a device for messages: its index, name and UUID.
func (d Device) String() string {
	if d.UUID == "" {
		return fmt.Sprintf("GPU %d", d.Index)
	}
	return fmt.Sprintf("GPU %d (%s, %s)", d.Index, d.Name, d.UUID)
}

// ComputeMode says who may use a device.
type ComputeMode string

// The compute modes. MPS wants ExclusiveProcess: then only its server has a
// context, and no stranger slips in beside it.
const (
	DefaultMode      ComputeMode = "default"
	ExclusiveThread  ComputeMode = "exclusive_thread"
	Prohibited       ComputeMode = "prohibited"
	ExclusiveProcess ComputeMode = "exclusive_process"
)

func computeMode(m nvml.ComputeMode) ComputeMode {
	switch m {
	case nvml.COMPUTEMODE_DEFAULT:
		return DefaultMode
	case nvml.COMPUTEMODE_EXCLUSIVE_THREAD:
		return ExclusiveThread
	case nvml.COMPUTEMODE_PROHIBITED:
		return Prohibited
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return ExclusiveProcess
	}
	return ComputeMode(fmt.Sprintf("mode %d", m))
}

// ECC is the state of error correction.
type ECC struct {
	Enabled bool `json:"enabled"`
	// Uncorrected are the errors since the driver was loaded.
	Uncorrected Reading[uint64] `json:"uncorrected"`
}

// describe reads a device. What a device cannot tell stays unknown; an answer
// that concerns the whole device becomes its Fault.
func (h *Host) describe(handle nvml.Device, index int) Device {
	d := Device{Index: index}
	if d.Fault = d.readNames(handle); d.Fault != nil {
		return d
	}
	d.readState(handle)
	d.Processes = h.processes(handle, d.UUID)
	d.Fault = errors.Join(fatal(d.Memory.Err), h.readMIG(&d, handle))
	return d
}

// readNames reads what every device has.
func (d *Device) readNames(handle nvml.Device) error {
	var code nvml.Return
	subject := fmt.Sprintf("GPU %d", d.Index)
	if d.UUID, code = handle.GetUUID(); code != nvml.SUCCESS {
		return check(code, "nvmlDeviceGetUUID", subject)
	}
	if d.Name, code = handle.GetName(); code != nvml.SUCCESS {
		return check(code, "nvmlDeviceGetName", subject)
	}
	pci, code := handle.GetPciInfo()
	if d.PCI = text(pci.BusId[:]); code != nvml.SUCCESS {
		return check(code, "nvmlDeviceGetPciInfo", subject)
	}
	d.Capability.Major, d.Capability.Minor, code = handle.GetCudaComputeCapability()
	return check(code, "nvmlDeviceGetCudaComputeCapability", subject)
}

func (d *Device) readState(handle nvml.Device) {
	d.Memory = memory(handle, d.UUID)
	limit, code := handle.GetEnforcedPowerLimit()
	d.PowerLimit = convert(read(limit, code, "nvmlDeviceGetEnforcedPowerLimit", d.UUID), watts)
	mode, code := handle.GetComputeMode()
	d.ComputeMode = convert(read(mode, code, "nvmlDeviceGetComputeMode", d.UUID), computeMode)
	state, code := handle.GetPersistenceMode()
	d.Persistence = convert(read(state, code, "nvmlDeviceGetPersistenceMode", d.UUID), enabled)
	d.ECC = ecc(handle, d.UUID)
}

func ecc(handle nvml.Device, subject string) Reading[ECC] {
	current, _, code := handle.GetEccMode()
	mode := read(current, code, "nvmlDeviceGetEccMode", subject)
	return convert(mode, func(s nvml.EnableState) ECC {
		errs, code := handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		return ECC{Enabled: enabled(s), Uncorrected: read(errs, code, "nvmlDeviceGetTotalEccErrors", subject)}
	})
}

func memory(handle nvml.Device, subject string) Reading[Memory] {
	m, code := handle.GetMemoryInfo()
	return convert(read(m, code, "nvmlDeviceGetMemoryInfo", subject), func(m nvml.Memory) Memory {
		return Memory{Total: m.Total, Free: m.Free, Used: m.Used}
	})
}

func enabled(s nvml.EnableState) bool { return s == nvml.FEATURE_ENABLED }

func watts(milliwatts uint32) float64 { return float64(milliwatts) / 1000 }

// fatal returns an error that concerns the whole device, else nil.
func fatal(err error) error {
	var f *Fault
	if errors.As(err, &f) && f.fatal() {
		return err
	}
	return nil
}

// text returns the characters of a C string.
func text(chars []int8) string {
	b := make([]byte, len(chars))
	for i, c := range chars {
		b[i] = byte(c)
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
