package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxDevices limits every loop over devices and MIG devices, because the driver's count
// is not trusted.
const maxDevices = 256

// Host is an initialised NVML library.
type Host struct {
	nvml nvml.Interface

	// symbols says which optional functions exist.
	symbols map[string]bool

	// mu is held for reading during every call into the library, so that Close waits
	// for calls in progress.
	mu struct {
		sync.RWMutex
		closed bool
	}
}

// Functions that older drivers lack. The library is bound lazily, and calling a function
// that does not exist ends the process, so each is looked up first.
const (
	symbolEventReasons    = "nvmlDeviceGetCurrentClocksEventReasons"
	symbolThrottleReasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
	symbolMPSProcesses    = "nvmlDeviceGetMPSComputeRunningProcesses"
	symbolMIGMode         = "nvmlDeviceGetMigMode"
)

// Open initialises NVML. With nil it loads the host's libnvidia-ml.so.1; tests pass a
// library of their own. It returns ErrNoDriver on a host without NVML, and ErrMismatch
// after a driver upgrade without a reboot.
func Open(library nvml.Interface) (*Host, error) {
	if library == nil {
		library = nvml.New()
	}
	h := &Host{nvml: library, symbols: map[string]bool{}}
	if err := check(h.nvml.Init(), "nvmlInit", ""); err != nil {
		return nil, fmt.Errorf("opening the NVIDIA driver: %w", err)
	}
	for _, name := range []string{symbolEventReasons, symbolThrottleReasons, symbolMPSProcesses, symbolMIGMode} {
		h.symbols[name] = h.nvml.Extensions().LookupSymbol(name) == nil
	}
	return h, nil
}

// Close waits for calls in progress and closes the library. A second call does nothing.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return nil
	}
	h.mu.closed = true
	return check(h.nvml.Shutdown(), "nvmlShutdown", "")
}

// use begins calls into the library; done ends them. It returns ErrClosed after Close,
// when a call would crash.
func (h *Host) use() (done func(), err error) {
	h.mu.RLock()
	if h.mu.closed {
		h.mu.RUnlock()
		return nil, ErrClosed
	}
	return h.mu.RUnlock, nil
}

// with calls work with the handle of a GPU or MIG device.
func (h *Host) with(uuid string, work func(nvml.Device) error) error {
	done, err := h.use()
	if err != nil {
		return err
	}
	defer done()
	handle, code := h.nvml.DeviceGetHandleByUUID(uuid)
	if code == nvml.ERROR_INVALID_ARGUMENT {
		code = nvml.ERROR_NOT_FOUND // some driver versions report an unknown UUID this way
	}
	if err := check(code, "nvmlDeviceGetHandleByUUID", uuid); err != nil {
		return err
	}
	return work(handle)
}

// leastPrefix is the minimum number of characters of a shortened UUID, after GPU- or
// MIG-. With fewer, a typing error could match a device.
const leastPrefix = 4

// Target is what a name refers to: a whole device, or an instance of it. Instance and
// Compute are nil for a whole device.
type Target struct {
	Device   Device
	Instance *Instance
	Compute  *computeInstance
}

// UUID returns the UUID for CUDA_VISIBLE_DEVICES.
func (t Target) UUID() string {
	if t.Compute != nil {
		return t.Compute.UUID
	}
	return t.Device.UUID
}

// Memory returns the memory of the device or the instance.
func (t Target) Memory() Reading[memory] {
	if t.Compute != nil {
		return t.Compute.Memory
	}
	return t.Device.Memory
}

// Find returns the device or MIG device with a name. A name is an index, a PCI address
// with or without its domain, a UUID, or a unique beginning of a UUID. The error wraps
// ErrNotFound or ErrAmbiguous, or is the device's own Fault.
func (f Facts) Find(name string) (Target, error) {
	name = strings.TrimSpace(name)
	isUUID := hasPrefixFold(name, "GPU-") || hasPrefixFold(name, "MIG-")
	pci, isPCI := parsePCI(name)
	var found []Target
	for _, t := range f.targets() {
		if isUUID && strings.EqualFold(t.UUID(), name) {
			return t, t.Device.Fault
		}
		fits := isUUID && len(name) >= len("GPU-")+leastPrefix && hasPrefixFold(t.UUID(), name)
		if t.Compute == nil && !isUUID {
			have, known := parsePCI(t.Device.PCI)
			fits = isPCI && known && have == pci && strings.Contains(name, ":") || strconv.Itoa(t.Device.Index) == name
		}
		if fits {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return Target{}, fmt.Errorf("gpu = %q: %w; this host has %s", name, ErrNotFound, f.names())
	case 1:
		return found[0], found[0].Device.Fault
	}
	return Target{}, fmt.Errorf("gpu = %q: %w: it fits %s and %s; write more of the UUID", name, ErrAmbiguous, found[0].UUID(), found[1].UUID())
}

// parsePCI parses domain, bus, device and function, which are hexadecimal. Domain and
// function default to 0.
func parsePCI(s string) (a [4]uint64, ok bool) {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	if strings.Count(s, ":") == 1 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) == 3 {
		parts = append(parts, "0")
	}
	if len(parts) != len(a) {
		return a, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 16, 32)
		if err != nil {
			return a, false
		}
		a[i] = n
	}
	return a, true
}

// targets lists every device, followed by its MIG devices.
func (f Facts) targets() (all []Target) {
	for _, d := range f.Devices {
		all = append(all, Target{Device: d})
		for i := range d.Instances {
			for c := range d.Instances[i].Compute {
				all = append(all, Target{Device: d, Instance: &d.Instances[i], Compute: &d.Instances[i].Compute[c]})
			}
		}
	}
	return all
}

func (f Facts) names() string {
	var all []string
	for _, t := range f.targets() {
		name := t.Device.String()
		if t.Compute != nil {
			name = t.UUID()
		}
		all = append(all, name)
	}
	return cmp.Or(strings.Join(all, ", "), "no GPU")
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// ErrVersions is returned by Versions if the driver does not support the libraries.
var ErrVersions = errors.New("driver and CUDA do not fit together")

// version is a version of CUDA, or a compute capability.
type version struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// cudaVersion decodes the number that NVML and the CUDA driver return: 1000 × major +
// 10 × minor.
func cudaVersion(n int) version { return version{n / 1000, n % 1000 / 10} }

// leastDriver maps a CUDA major version to the oldest branch of the Linux driver that
// runs its programs. It follows the minor version compatibility in the release notes of
// NVIDIA's CUDA toolkit.
var leastDriver = map[int]int{11: 450, 12: 525, 13: 580}

// Versions checks whether a driver runs libraries that were built for a CUDA major
// version, which is that of ONNX Runtime's provider. driver is a version such as
// "580.65.06", and runs the newest CUDA version it supports, zero if unknown. The error
// wraps ErrVersions and says what to install.
func Versions(driver string, runs version, wantMajor int) error {
	least, ok := leastDriver[wantMajor]
	first, _, _ := strings.Cut(driver, ".")
	branch, err := strconv.Atoi(first)
	remedy := fmt.Sprintf("install driver %d or newer and reboot", least)
	if branch >= leastDriver[12] && wantMajor > 12 {
		remedy += ", or take an ONNX Runtime for CUDA 12"
	}
	switch {
	case !ok:
		return fmt.Errorf("%w: nothing is known of CUDA %d; take an ONNX Runtime for CUDA 12 or 13", ErrVersions, wantMajor)
	case err != nil || branch <= 0:
		return fmt.Errorf("%w: %q is no driver version such as 580.65.06; see nvidia-smi", ErrVersions, driver)
	case branch < least:
		return fmt.Errorf("%w: ONNX Runtime wants CUDA %d, which needs driver %d or newer, and driver %s is loaded; %s", ErrVersions, wantMajor, least, driver, remedy)
	case runs != (version{}) && runs.Major < wantMajor:
		return fmt.Errorf("%w: ONNX Runtime wants CUDA %d, and driver %s says that it runs CUDA %s at most; install driver %d or newer and reboot, and remove a compatibility package that is older",
			ErrVersions, wantMajor, driver, runs, least)
	}
	return nil
}
