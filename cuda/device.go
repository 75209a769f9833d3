package cuda

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Facts is what NVML reports about a host and its GPUs.
type Facts struct {
	// Driver is a version such as "580.65.06".
	Driver string `json:"driver"`
	NVML   string `json:"nvml"`

	// CUDA is the newest version that the driver supports.
	CUDA    version  `json:"cuda"`
	Devices []Device `json:"devices"`
}

// Facts reads all devices. A device that does not answer is listed with its Fault, so
// that one broken GPU does not hide the others.
func (h *Host) Facts() (Facts, error) {
	done, err := h.use()
	if err != nil {
		return Facts{}, err
	}
	defer done()
	var f Facts
	var newest, count int
	fetch(&err, &f.Driver, "nvmlSystemGetDriverVersion", "", h.nvml.SystemGetDriverVersion)
	fetch(&err, &f.NVML, "nvmlSystemGetNVMLVersion", "", h.nvml.SystemGetNVMLVersion)
	fetch(&err, &newest, "nvmlSystemGetCudaDriverVersion", "", h.nvml.SystemGetCudaDriverVersion)
	fetch(&err, &count, "nvmlDeviceGetCount", "", h.nvml.DeviceGetCount)
	if err != nil {
		return Facts{}, err
	}
	f.CUDA = cudaVersion(newest)
	for i := range min(count, maxDevices) {
		d := Device{Index: i}
		handle, code := h.nvml.DeviceGetHandleByIndex(i)
		if d.Fault = check(code, "nvmlDeviceGetHandleByIndex", d.String()); d.Fault == nil {
			d = h.describe(handle, i)
		}
		f.Devices = append(f.Devices, d)
	}
	return f, nil
}

// Device reads the current state of one device by its UUID.
func (h *Host) Device(uuid string) (d Device, err error) {
	err = h.with(uuid, func(handle nvml.Device) error {
		index, code := handle.GetIndex()
		if err := check(code, "nvmlDeviceGetIndex", uuid); err != nil {
			return err
		}
		d = h.describe(handle, index)
		return d.Fault
	})
	return d, err
}

// memory is in bytes.
type memory struct {
	Total uint64 `json:"total_bytes"`
	Free  uint64 `json:"free_bytes"`
	Used  uint64 `json:"used_bytes"`
}

// Device is a GPU. Its index is NVML's, in the order of PCI addresses.
type Device struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`

	// PCI is an address such as "00000000:3B:00.0".
	PCI        string  `json:"pci"`
	Name       string  `json:"name"`
	Capability version `json:"capability"`

	Memory      Reading[memory]    `json:"memory"`
	PowerLimit  Reading[float64]   `json:"power_limit_watts"`
	ComputeMode Reading[string]    `json:"compute_mode"`
	Persistence Reading[bool]      `json:"persistence"`
	ECC         Reading[ecc]       `json:"ecc"`
	Processes   Reading[[]Process] `json:"processes"`

	MIG       MIG        `json:"mig"`
	Instances []Instance `json:"instances"`

	// Fault is why the device could not be read completely, nil for a device that
	// answers.
	Fault error `json:"-"`
}

// String identifies a device in messages by its index, name and UUID.
func (d Device) String() string {
	if d.UUID == "" {
		return fmt.Sprintf("GPU %d", d.Index)
	}
	return fmt.Sprintf("GPU %d (%s, %s)", d.Index, d.Name, d.UUID)
}

// The compute modes, which decide how many processes may use a device. MPS needs
// ExclusiveProcess: only its server then has a context, so no other process can use the
// device past it.
const (
	DefaultMode      = "default"
	ExclusiveThread  = "exclusive_thread"
	Prohibited       = "prohibited"
	ExclusiveProcess = "exclusive_process"
)

// computeModes is indexed by NVML's numbers.
var computeModes = [...]string{DefaultMode, ExclusiveThread, Prohibited, ExclusiveProcess}

func computeMode(m nvml.ComputeMode) string {
	if m >= 0 && int(m) < len(computeModes) {
		return computeModes[m]
	}
	return fmt.Sprintf("mode %d", m)
}

type ecc struct {
	Enabled bool `json:"enabled"`
	// Uncorrected counts the errors since the driver was loaded.
	Uncorrected Reading[uint64] `json:"uncorrected"`
}

// describe reads a device. Values that the device cannot report remain unknown. An error
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

// readNames reads what every device must report. An error means that the device does not
// answer.
func (d *Device) readNames(handle nvml.Device) (err error) {
	var pci nvml.PciInfo
	subject := fmt.Sprintf("GPU %d", d.Index)
	fetch(&err, &d.UUID, "nvmlDeviceGetUUID", subject, handle.GetUUID)
	fetch(&err, &d.Name, "nvmlDeviceGetName", subject, handle.GetName)
	fetch(&err, &pci, "nvmlDeviceGetPciInfo", subject, handle.GetPciInfo)
	d.PCI = text(pci.BusId[:])
	if err != nil {
		return err
	}
	var code nvml.Return
	d.Capability.Major, d.Capability.Minor, code = handle.GetCudaComputeCapability()
	return check(code, "nvmlDeviceGetCudaComputeCapability", subject)
}

// readState reads the values that a device may be unable to report.
func (d *Device) readState(handle nvml.Device) {
	d.Memory = readMemory(handle, d.UUID)
	d.PowerLimit = ask("nvmlDeviceGetEnforcedPowerLimit", d.UUID, handle.GetEnforcedPowerLimit, watts)
	d.ComputeMode = ask("nvmlDeviceGetComputeMode", d.UUID, handle.GetComputeMode, computeMode)
	d.Persistence = ask("nvmlDeviceGetPersistenceMode", d.UUID, handle.GetPersistenceMode, enabled)
	currentECC := func() (nvml.EnableState, nvml.Return) {
		current, _, code := handle.GetEccMode()
		return current, code
	}
	d.ECC = ask("nvmlDeviceGetEccMode", d.UUID, currentECC, func(s nvml.EnableState) ecc {
		uncorrected := func() (uint64, nvml.Return) {
			return handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		}
		return ecc{enabled(s), ask("nvmlDeviceGetTotalEccErrors", d.UUID, uncorrected, func(n uint64) uint64 { return n })}
	})
}

// readMemory reads the memory of a device or MIG device.
func readMemory(handle nvml.Device, subject string) Reading[memory] {
	return ask("nvmlDeviceGetMemoryInfo", subject, handle.GetMemoryInfo, func(m nvml.Memory) memory {
		return memory{Total: m.Total, Free: m.Free, Used: m.Used}
	})
}

func enabled(s nvml.EnableState) bool { return s == nvml.FEATURE_ENABLED }

// text converts a C string.
func text(chars []int8) string {
	var b []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

// maxProcesses limits how many processes of a device are listed.
const maxProcesses = 1024

// Process is a process that computes on a device.
type Process struct {
	PID    int             `json:"pid"`
	Memory Reading[uint64] `json:"memory_bytes"`
}

// noMemory is NVML's NVML_VALUE_NOT_AVAILABLE for the memory of a process.
const noMemory = ^uint64(0)

// processes returns the processes that compute on a device or MIG device, including MPS
// clients, sorted by PID.
func (h *Host) processes(handle nvml.Device, subject string) Reading[[]Process] {
	infos, code := handle.GetComputeRunningProcesses()
	if err := check(code, "nvmlDeviceGetComputeRunningProcesses", subject); err != nil {
		return Reading[[]Process]{Err: err}
	}
	if h.symbols[symbolMPSProcesses] {
		// MIG devices and older GPUs have no such list; the first list has to do.
		if clients, code := handle.GetMPSComputeRunningProcesses(); code == nvml.SUCCESS {
			infos = append(slices.Clone(infos), clients...)
		}
	}
	infos = infos[:min(len(infos), maxProcesses)]
	all := make([]Process, len(infos))
	for i, info := range infos {
		all[i].PID = int(info.Pid)
		if info.UsedGpuMemory != noMemory {
			all[i].Memory = known(info.UsedGpuMemory)
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return known(slices.CompactFunc(all, func(a, b Process) bool { return a.PID == b.PID }))
}

// Reading is a value that a device may be unable to report. The zero Reading means
// unknown, not zero.
type Reading[T any] struct {
	Value T
	Known bool

	// Err is why the value is unknown.
	Err error
}

func known[T any](value T) Reading[T] { return Reading[T]{Value: value, Known: true} }

// fetch stores the result of a call, unless an earlier call has failed.
func fetch[T any](err *error, into *T, call, subject string, get func() (T, nvml.Return)) {
	if *err == nil {
		value, code := get()
		*into, *err = value, check(code, call, subject)
	}
}

// ask converts the result of a call to a reading.
func ask[T, U any](call, subject string, get func() (T, nvml.Return), convert func(T) U) Reading[U] {
	value, code := get()
	if err := check(code, call, subject); err != nil {
		return Reading[U]{Err: err}
	}
	return known(convert(value))
}

// MarshalJSON encodes an unknown value as null.
func (r Reading[T]) MarshalJSON() ([]byte, error) {
	if !r.Known {
		return []byte("null"), nil
	}
	return json.Marshal(r.Value)
}

// UnmarshalJSON decodes what MarshalJSON wrote. The reason why a value is unknown is
// lost.
func (r *Reading[T]) UnmarshalJSON(data []byte) error {
	*r = Reading[T]{}
	if string(data) == "null" {
		return nil
	}
	r.Known = true
	return json.Unmarshal(data, &r.Value)
}
