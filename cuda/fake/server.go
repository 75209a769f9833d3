package fake

import (
	"crypto/sha1"
	"fmt"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// Server is a host with GPUs. Its methods may be called by many goroutines; its
// fields are set before the first call.
type Server struct {
	*dgxa100.Server
	// Devices are the GPUs in the order of their indices.
	Devices []*Device
	// Unprivileged makes calls that need root answer NO_PERMISSION.
	Unprivileged bool
	// Missing are symbols that the driver does not have.
	Missing map[string]bool
	// OnCall gets every call before it is answered; it may panic, as a process
	// that is killed there.
	OnCall func(call string)

	mu     sync.Mutex
	calls  int
	fails  []*failure
	log    []string
	opened int
}

// failure is what a call is to answer instead of doing its work, or after it.
type failure struct {
	call  string // any if ""
	skip  int    // calls still to pass by
	times int    // answers still to give; −1 for all
	code  nvml.Return
	after bool
}

// New returns a host with a GPU for each model, or with one H100.
func New(models ...Model) *Server {
	if len(models) == 0 {
		models = []Model{H100}
	}
	s := &Server{Server: dgxa100.New(), Missing: map[string]bool{}}
	for i, m := range models {
		s.Devices = append(s.Devices, newDevice(s, m, i))
	}
	s.DriverVersion, s.NvmlVersion, s.CudaDriverVersion = "580.65.06", "13.580.65.06", 13000
	s.setSystem()
	s.setHandles()
	return s
}

func (s *Server) setSystem() {
	s.InitFunc = func() nvml.Return {
		return s.do("nvmlInit", func() nvml.Return { s.opened++; return nvml.SUCCESS })
	}
	s.ShutdownFunc = func() nvml.Return {
		return s.do("nvmlShutdown", func() nvml.Return {
			if s.opened == 0 {
				return nvml.ERROR_UNINITIALIZED
			}
			s.opened--
			return nvml.SUCCESS
		})
	}
	s.LookupSymbolFunc = func(name string) error {
		if s.Missing[name] {
			return fmt.Errorf("symbol %s not found", name)
		}
		return nil
	}
	s.DeviceGetCountFunc = func() (int, nvml.Return) {
		return len(s.Devices), s.do("nvmlDeviceGetCount", succeed)
	}
}

func succeed() nvml.Return { return nvml.SUCCESS }

func (s *Server) setHandles() {
	s.DeviceGetHandleByIndexFunc = func(index int) (device nvml.Device, code nvml.Return) {
		code = s.do("nvmlDeviceGetHandleByIndex", func() nvml.Return {
			if index < 0 || index >= len(s.Devices) {
				return nvml.ERROR_INVALID_ARGUMENT
			}
			device = s.Devices[index]
			return nvml.SUCCESS
		})
		return device, code
	}
	s.DeviceGetHandleByUUIDFunc = func(uuid string) (device nvml.Device, code nvml.Return) {
		code = s.do("nvmlDeviceGetHandleByUUID", func() nvml.Return {
			device = s.lookup(uuid)
			if device == nil {
				return nvml.ERROR_NOT_FOUND
			}
			return nvml.SUCCESS
		})
		return device, code
	}
}

// lookup returns a device or MIG device; nil, without a type, if there is none.
func (s *Server) lookup(uuid string) nvml.Device {
	for _, d := range s.Devices {
		if d.UUID == uuid {
			return d
		}
		for _, m := range d.migDevices() {
			if m.uuid == uuid {
				return m
			}
		}
	}
	return nil
}

// do answers a call: what it is to fail with, else what the work returns.
func (s *Server) do(call string, work func() nvml.Return) nvml.Return {
	if s.OnCall != nil {
		s.OnCall(call)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	f := s.failing(call)
	if f != nil && !f.after {
		return f.code
	}
	code := work()
	if f != nil {
		return f.code
	}
	return code
}

// failing returns the failure that a call is to meet, nil for none.
func (s *Server) failing(call string) (hit *failure) {
	for _, f := range s.fails {
		switch {
		case f.call != "" && f.call != call, f.times == 0:
		case f.skip > 0:
			f.skip--
		case hit == nil:
			hit = f
			f.times--
		}
	}
	return hit
}

// Fail makes a call, any if its name is "", answer a code: after skip calls, so
// many times (−1 for ever).
func (s *Server) Fail(call string, skip, times int, code nvml.Return) {
	s.addFailure(&failure{call, skip, times, code, false})
}

// FailAfter is Fail for a call that does its work and fails nevertheless, as
// when an answer is lost.
func (s *Server) FailAfter(call string, skip, times int, code nvml.Return) {
	s.addFailure(&failure{call, skip, times, code, true})
}

func (s *Server) addFailure(f *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = append(s.fails, f)
}

// Mend forgets all failures.
func (s *Server) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = nil
}

// Calls returns how many calls there were.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Closed reports whether the library was shut down as often as initialised.
func (s *Server) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened == 0
}

// Log returns what was changed, in order.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}

func (s *Server) note(format string, a ...any) { s.log = append(s.log, fmt.Sprintf(format, a...)) }

// State returns all modes and instances as text, to compare.
func (s *Server) State() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, d := range s.Devices {
		d.describe(&b)
	}
	return b.String()
}

// uuid makes a UUID of version 5 from a name. Real MIG devices have such, too:
// the same instance of the same GPU has the same UUID after it was destroyed and
// created again.
func uuid(prefix, name string) string {
	h := sha1.Sum([]byte(name))
	h[6] = h[6]&0x0f | 0x50
	h[8] = h[8]&0x3f | 0x80
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// Place puts an instance of a profile, by its ID, at a place as a stranger
// would, with a compute instance of so many slices unless that is 0.
func (s *Server) Place(index int, profile, start, slices uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.Devices[index]
	p := d.Model.byID(profile)
	if p == nil || !d.free(p, start) || slices > p.Slices {
		return fmt.Errorf("profile %d does not fit at %d", profile, start)
	}
	gi := d.add(p, start)
	for number, n := range computeSlices {
		if n == slices {
			gi.add(uint32(number), n)
		}
	}
	return nil
}

// SetMIG sets the mode of a GPU as if it had been so since the host started.
func (s *Server) SetMIG(index int, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.Devices[index]
	d.MigMode = nvml.DEVICE_MIG_DISABLE
	if on {
		d.MigMode = nvml.DEVICE_MIG_ENABLE
	}
	d.pending = d.MigMode
}
