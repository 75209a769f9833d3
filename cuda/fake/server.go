// Package fake is a host full of GPUs for tests: the fake server of go-nvml,
// given the rules of real MIG hardware.
//
// A [Server] is an nvml.Interface with [Device]s of a [Model]. It keeps where
// instances may lie, how many there may be, what must be created and destroyed
// before what, who may ask for what, and that nothing in use is destroyed. It
// fails where a test asks for it and logs every call that changes something.
//
// Only tests import it. Sources of the tables: NVIDIA's MIG user guide
// (docs.nvidia.com/datacenter/tesla/mig-user-guide, "Supported MIG Profiles" and
// the outputs of nvidia-smi mig -lgip and -lgipp in "Getting Started"); the rules
// are the comments of nvml.h. Where the guide has no number for the memory of a
// profile, the share of the GPU's memory is used.
package fake

import (
	"crypto/sha1"
	"fmt"
	"reflect"
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

// watch puts do in front of every function that a mock has, under NVML's name for
// it: prefix and the field's name. A call that is refused does no work.
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

// do answers a call: what it is to fail with, else what the work returns.
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

// Fail makes a call, any if its name is "", answer a code: after skip calls, so
// many times (−1 for ever).
func (s *Server) Fail(call string, skip, times int, code nvml.Return) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = append(s.fails, &failure{call, skip, times, code, false})
}

// FailAfter is Fail for a call that does its work and fails nevertheless, as
// when an answer is lost.
func (s *Server) FailAfter(call string, skip, times int, code nvml.Return) {
	s.Fail(call, skip, times, code)
	s.fails[len(s.fails)-1].after = true
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
