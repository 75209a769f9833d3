package cuda

import (
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxDevices bounds every loop over devices and MIG devices, whatever the
// driver says.
const maxDevices = 256

// Options are what a Host is opened with.
type Options struct {
	// Library is NVML; nil takes libnvidia-ml.so.1 of the host.
	Library nvml.Interface
}

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

// optional are calls that drivers older than the ones we want do not have.
// The library is bound lazily: calling what is not there ends the process.
var optional = []string{
	symbolEventReasons, symbolThrottleReasons, symbolMPSProcesses, symbolMIGMode,
}

// Names of optional calls.
const (
	symbolEventReasons    = "nvmlDeviceGetCurrentClocksEventReasons"
	symbolThrottleReasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
	symbolMPSProcesses    = "nvmlDeviceGetMPSComputeRunningProcesses"
	symbolMIGMode         = "nvmlDeviceGetMigMode"
)

// Open loads and initialises NVML. It returns ErrNoDriver on a host without
// one, ErrMismatch after an upgrade without a reboot.
func Open(o Options) (*Host, error) {
	h := &Host{nvml: o.Library, symbols: map[string]bool{}}
	if h.nvml == nil {
		h.nvml = nvml.New()
	}
	if err := check(h.nvml.Init(), "nvmlInit", ""); err != nil {
		return nil, fmt.Errorf("opening the NVIDIA driver: %w", err)
	}
	for _, name := range optional {
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

// missing returns the error of an optional call that the driver does not have.
func (h *Host) missing(symbol string) error {
	if h.symbols[symbol] {
		return nil
	}
	return &Fault{Call: symbol, Code: nvml.ERROR_FUNCTION_NOT_FOUND}
}

// handle returns the NVML handle of a GPU or MIG UUID, between use and done.
func (h *Host) handle(uuid string) (nvml.Device, error) {
	device, code := h.nvml.DeviceGetHandleByUUID(uuid)
	if code == nvml.ERROR_INVALID_ARGUMENT {
		code = nvml.ERROR_NOT_FOUND // what some versions mean by it
	}
	return device, check(code, "nvmlDeviceGetHandleByUUID", uuid)
}
