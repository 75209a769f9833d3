// Package fakegpu is a host with GPUs for tests. It extends the fake server of go-nvml by the
// rules of real MIG hardware.
//
// A [Server] is an nvml.Interface with GPUs of a [Model]. It enforces where instances
// may lie and how many there may be, the order of creating and destroying, privileges, and
// that nothing in use is destroyed. It fails where a test asks for that, and logs every call
// that changes something.
//
// Only tests import it. The tables come from NVIDIA's MIG user guide
// (docs.nvidia.com/datacenter/tesla/mig-user-guide, "Supported MIG Profiles" and the outputs
// of nvidia-smi mig -lgip and -lgipp in "Getting Started"), the rules from the comments in
// nvml.h. If the guide does not give the memory of a profile, the share of the GPU's memory
// is used.
package fakegpu

import (
	"crypto/sha1"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// Server is a host with GPUs. Its methods are safe for concurrent use. Its fields must be
// set before the first call.
type Server struct {
	*dgxa100.Server
	// Devices are the GPUs in the order of their indices.
	Devices []*device
	// Unprivileged makes calls that need root return NO_PERMISSION.
	Unprivileged bool
	// Missing lists symbols that the driver does not have.
	Missing map[string]bool
	// OnCall receives every call before it is executed. It may panic, to simulate a
	// process that is killed at that point.
	OnCall func(call string)

	mu     sync.Mutex
	calls  int
	fails  []*failure
	log    []string
	opened int
}

// failure is a return code that calls give instead of doing their work, or after it.
type failure struct {
	// call is the name of the call, "" for any.
	call string

	// skip is how many more calls succeed first, and times how many fail after that; −1
	// means all.
	skip  int
	times int
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
	s.InitFunc = func() nvml.Return { s.opened++; return nvml.SUCCESS }
	s.ShutdownFunc = func() nvml.Return {
		if s.opened == 0 {
			return nvml.ERROR_UNINITIALIZED
		}
		s.opened--
		return nvml.SUCCESS
	}
	s.LookupSymbolFunc = func(name string) error {
		if s.Missing[name] {
			return fmt.Errorf("symbol %s not found", name)
		}
		return nil
	}
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return len(s.Devices), nvml.SUCCESS }
	s.DeviceGetHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		if index < 0 || index >= len(s.Devices) {
			return nil, nvml.ERROR_INVALID_ARGUMENT
		}
		return s.Devices[index], nvml.SUCCESS
	}
	s.DeviceGetHandleByUUIDFunc = s.lookup
	s.watch("nvml", &s.Server.Interface, func(string) nvml.Return { return nvml.SUCCESS })
	return s
}

// lookup finds a device or MIG device by its UUID.
func (s *Server) lookup(uuid string) (nvml.Device, nvml.Return) {
	for _, d := range s.Devices {
		if d.UUID == uuid {
			return d, nvml.SUCCESS
		}
		for _, m := range d.migDevices() {
			if m.uuid == uuid {
				return m, nvml.SUCCESS
			}
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// watch wraps every function of a mock in do, under NVML's name for it, which is prefix and
// the field's name. A call that refusal rejects does no work.
func (s *Server) watch(prefix string, mock any, refusal func(call string) nvml.Return) {
	fields := reflect.ValueOf(mock).Elem()
	for i := range fields.NumField() {
		field := fields.Field(i)
		if field.Kind() != reflect.Func || field.IsNil() || field.Type().Out(field.Type().NumOut()-1) != reflect.TypeFor[nvml.Return]() {
			continue
		}
		call, answer := prefix+strings.TrimSuffix(fields.Type().Field(i).Name, "Func"), reflect.ValueOf(field.Interface())
		field.Set(reflect.MakeFunc(field.Type(), func(in []reflect.Value) []reflect.Value {
			out := make([]reflect.Value, field.Type().NumOut())
			for i := range out {
				out[i] = reflect.Zero(field.Type().Out(i))
			}
			code := s.do(call, func() nvml.Return {
				if code := refusal(call); code != nvml.SUCCESS {
					return code
				}
				out = answer.Call(in)
				return out[len(out)-1].Interface().(nvml.Return)
			})
			out[len(out)-1] = reflect.ValueOf(code)
			return out
		}))
	}
}

// do executes a call, or makes it fail as a test requested. Calls are serialized.
func (s *Server) do(call string, work func() nvml.Return) nvml.Return {
	if s.OnCall != nil {
		s.OnCall(call)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	var hit *failure
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
	if hit == nil {
		return work()
	}
	if hit.after {
		work()
	}
	return hit.code
}

// Fail makes a call return a code, after skip successful calls, the given number of times
// (−1 for always). With the name "" it applies to every call.
func (s *Server) Fail(call string, skip, times int, code nvml.Return) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = append(s.fails, &failure{call, skip, times, code, false})
}

// FailAfter is Fail for a call that does its work before it fails, as if the answer were
// lost.
func (s *Server) FailAfter(call string, skip, times int, code nvml.Return) {
	s.Fail(call, skip, times, code)
	s.fails[len(s.fails)-1].after = true
}

// Mend removes all failures that Fail and FailAfter set.
func (s *Server) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = nil
}

// Calls returns the number of calls so far.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Closed reports whether the library was shut down as often as it was initialised.
func (s *Server) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened == 0
}

// Log returns all changes, in order.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}

// note adds a change to the log. The caller holds mu.
func (s *Server) note(format string, a ...any) { s.log = append(s.log, fmt.Sprintf(format, a...)) }

// State returns all modes and instances as text, for comparisons.
func (s *Server) State() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, d := range s.Devices {
		fmt.Fprintf(&b, "GPU %d mode %d pending %d\n", d.Index, d.MigMode, d.pending)
		for _, gi := range d.sorted() {
			fmt.Fprintf(&b, "  instance %d profile %d at %d:%d", gi.Info.Id, gi.Info.ProfileId, gi.Info.Placement.Start, gi.Info.Placement.Size)
			for _, ci := range gi.compute {
				fmt.Fprintf(&b, " compute %d profile %d", ci.Info.Id, ci.Info.ProfileId)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// uuid derives a UUID of version 5 from a name, as drivers do for MIG devices: an instance
// that is destroyed and created again has the same UUID.
func uuid(prefix, name string) string {
	h := sha1.Sum([]byte(name))
	h[6] = h[6]&0x0f | 0x50
	h[8] = h[8]&0x3f | 0x80
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// Place creates an instance of a profile at a placement, as somebody other than overlapd
// would. It adds a compute instance with the given number of slices, unless that is 0.
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

// SetMIG sets the MIG mode of a GPU as if it had been so since the host started.
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
