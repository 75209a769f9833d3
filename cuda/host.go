package cuda

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxDevices bounds every loop over devices and MIG devices, whatever the
// driver says.
const maxDevices = 256

// Host is an initialised NVML library.
type Host struct {
	nvml    nvml.Interface
	symbols map[string]bool // the optional ones: calling one that is not there ends the process

	// mu is held for reading during every call into the library, so that Close
	// cannot take it away under a call.
	mu struct {
		sync.RWMutex
		closed bool
	}
}

// The calls that drivers older than the ones we want do not have. The library is bound
// lazily: calling what is not there ends the process.
const (
	symbolEventReasons    = "nvmlDeviceGetCurrentClocksEventReasons"
	symbolThrottleReasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
	symbolMPSProcesses    = "nvmlDeviceGetMPSComputeRunningProcesses"
	symbolMIGMode         = "nvmlDeviceGetMigMode"
)

// Open initialises NVML: a library that is given, as tests do, or libnvidia-ml.so.1 of
// the host for nil. It returns ErrNoDriver on a host without one, ErrMismatch after an
// upgrade without a reboot.
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

// Close gives the library back, after the calls that are under way. Closing
// again does nothing.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return nil
	}
	h.mu.closed = true
	return check(h.nvml.Shutdown(), "nvmlShutdown", "")
}

// use begins calls into the library, which done ends. The error is ErrClosed: to
// call into a library that is gone would crash.
func (h *Host) use() (done func(), err error) {
	h.mu.RLock()
	if h.mu.closed {
		h.mu.RUnlock()
		return nil, ErrClosed
	}
	return h.mu.RUnlock, nil
}

// with calls into the library with the handle of a GPU or MIG device.
func (h *Host) with(uuid string, work func(nvml.Device) error) error {
	done, err := h.use()
	if err != nil {
		return err
	}
	defer done()
	handle, err := h.handle(uuid)
	if err != nil {
		return err
	}
	return work(handle)
}

// missing returns the error of an optional call that the driver does not have.
func (h *Host) missing(symbol string) error {
	if h.symbols[symbol] {
		return nil
	}
	return &fault{Call: symbol, Code: nvml.ERROR_FUNCTION_NOT_FOUND}
}

// handle returns the NVML handle of a GPU or MIG UUID, between use and done.
func (h *Host) handle(uuid string) (nvml.Device, error) {
	device, code := h.nvml.DeviceGetHandleByUUID(uuid)
	if code == nvml.ERROR_INVALID_ARGUMENT {
		code = nvml.ERROR_NOT_FOUND // what some versions mean by it
	}
	return device, check(code, "nvmlDeviceGetHandleByUUID", uuid)
}

// leastPrefix is how many characters of a UUID, after GPU- or MIG-, name it: with
// fewer a typing error would find something.
const leastPrefix = 4

// Target is what a name stands for: a whole device, or an instance of it.
type Target struct {
	Device   Device
	Instance *Instance        // nil for a whole device
	Compute  *computeInstance // nil for a whole device
}

// UUID returns what CUDA_VISIBLE_DEVICES takes.
func (t Target) UUID() string {
	if t.Compute != nil {
		return t.Compute.UUID
	}
	return t.Device.UUID
}

// Find reads the facts and looks a name up in them.
func (h *Host) Find(name string) (Target, error) {
	facts, err := h.Facts()
	if err != nil {
		return Target{}, err
	}
	return facts.Find(name)
}

// Find returns the device or MIG device of a name: an index, a PCI address with
// or without its domain, or a UUID or the unique beginning of one. The error is
// an ErrNotFound or ErrAmbiguous, or the device's own Fault.
func (f Facts) Find(name string) (Target, error) {
	name = strings.TrimSpace(name)
	var found []Target
	switch {
	case name == "":
	case hasPrefixFold(name, "GPU-"), hasPrefixFold(name, "MIG-"):
		found = f.byUUID(name)
	case strings.Contains(name, ":"):
		found = f.byPCI(name)
	default:
		found = f.byIndex(name)
	}
	switch {
	case len(found) == 0:
		return Target{}, fmt.Errorf("gpu = %q: %w; this host has %s", name, ErrNotFound, f.names())
	case len(found) > 1:
		return Target{}, fmt.Errorf("gpu = %q: %w: it fits %s and %s; write more of the UUID", name, ErrAmbiguous, found[0].UUID(), found[1].UUID())
	}
	return found[0], found[0].Device.Fault
}

func (f Facts) byIndex(name string) (found []Target) {
	index, err := strconv.Atoi(name)
	for _, d := range f.Devices {
		if err == nil && d.Index == index {
			found = append(found, Target{Device: d})
		}
	}
	return found
}

func (f Facts) byPCI(name string) (found []Target) {
	want, ok := parsePCI(name)
	for _, d := range f.Devices {
		if have, known := parsePCI(d.PCI); ok && known && have == want {
			found = append(found, Target{Device: d})
		}
	}
	return found
}

// parsePCI reads domain, bus, device and function, in hexadecimal.
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

func (f Facts) byUUID(name string) (found []Target) {
	for _, t := range f.targets() {
		switch {
		case strings.EqualFold(t.UUID(), name):
			return []Target{t}
		case len(name) >= len("GPU-")+leastPrefix && hasPrefixFold(t.UUID(), name):
			found = append(found, t)
		}
	}
	return found
}

// targets returns all devices and MIG devices.
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

// names lists what there is, for an error.
func (f Facts) names() string {
	var all []string
	for _, t := range f.targets() {
		if t.Compute != nil {
			all = append(all, t.UUID())
		} else {
			all = append(all, t.Device.String())
		}
	}
	if len(all) == 0 {
		return "no GPU"
	}
	return strings.Join(all, ", ")
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
