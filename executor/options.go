package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// ServiceSpec is what the executor must know of a service.
type ServiceSpec struct {
	ID          models.ServiceID
	Name        string
	Load        wire.LoadSpec
	InputBytes  int64    // size of the input arena, 0 for wire.DefaultInputBytes
	OutputBytes int64    // size of the output arena, 0 for wire.DefaultOutputBytes
	Env         []string // of its worker, nil for that of Options
	Refused     error    // why it is not started unless somebody asks for it, nil if it is
}

// Options of an executor. What is zero is set to its default.
type Options struct {
	Command  []string // argv of a worker
	Inside   Inside   // what runs workers in place of Command, nil for processes
	Env      []string // of a worker, nil for that of this process
	Services []ServiceSpec

	LoadTimeout time.Duration // from the start of a process until it is ready
	SpanTimeout time.Duration // of one span; the worker is then killed
	Poll        time.Duration // both ends of a socket look this long for the next message before they sleep, 0 for not at all
	CloseGrace  time.Duration // for a worker to exit by itself when the executor closes or its service is removed

	// ReleaseGrace is for how long Remove waits for the inputs and outputs that
	// are still in use once the worker is gone: a client may be reading an
	// answer.
	ReleaseGrace time.Duration

	// Policy says when a lost worker is started again, and when its service is
	// given up.
	child.Policy

	// BeforeKill, if it is set, is called before a worker is killed that has not
	// answered all it was sent, a model to load included: whoever shares a device
	// with it may need to be protected from its end. Its rounds are over by then.
	// It must have a limit.
	BeforeKill func(id models.ServiceID, pid int)

	// Events is told what happens to the workers. It is called from several
	// goroutines and must return soon.
	Events func(Event)
}

func (o Options) withDefaults() Options {
	o.LoadTimeout = orDefault(o.LoadTimeout, 10*time.Minute)
	o.SpanTimeout = orDefault(o.SpanTimeout, 30*time.Second)
	o.CloseGrace = orDefault(o.CloseGrace, 2*time.Second)
	o.ReleaseGrace = orDefault(o.ReleaseGrace, 30*time.Second)
	o.Policy = o.Policy.WithDefaults(child.Policy{
		BackoffMin: 50 * time.Millisecond, BackoffMax: time.Second, HealthyAfter: 10 * time.Second,
		RestartLimit: 30, RestartWindow: time.Minute,
	})
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	return o
}

func (s ServiceSpec) withDefaults() ServiceSpec {
	s.Load.Service = orDefault(s.Load.Service, s.Name)
	s.InputBytes = orDefault(s.InputBytes, wire.DefaultInputBytes)
	s.OutputBytes = orDefault(s.OutputBytes, wire.DefaultOutputBytes)
	return s
}

// validate returns what is wrong with a service that has its defaults.
func (s *ServiceSpec) validate() error {
	for name, bytes := range map[string]int64{"input": s.InputBytes, "output": s.OutputBytes} {
		if bytes < 0 || bytes > wire.MaxArenaBytes {
			return fmt.Errorf("%w: service %s: %w: an %s arena of %d bytes, choose from 1 to %d",
				ErrOptions, s.Name, wire.ErrArenaSize, name, bytes, int64(wire.MaxArenaBytes))
		}
	}
	return nil
}

func orDefault[T comparable](v, standard T) T {
	var zero T
	if v == zero {
		return standard
	}
	return v
}

// validate returns every fault of options that have their defaults.
func (o Options) validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	fault(len(o.Command) == 0 && o.Inside == nil, "no command")
	fault(len(o.Services) == 0, "no service")
	for name, d := range map[string]time.Duration{
		"load timeout": o.LoadTimeout, "span timeout": o.SpanTimeout, "poll": o.Poll, "close grace": o.CloseGrace, "release grace": o.ReleaseGrace,
	} {
		fault(d < 0, "%s of %v", name, d)
	}
	if err := o.Policy.Validate(); err != nil {
		fault(true, "%w", err)
	}
	seen := map[models.ServiceID]bool{}
	for _, s := range o.Services {
		fault(seen[s.ID], "two services %d", s.ID)
		seen[s.ID] = true
	}
	return errors.Join(faults...)
}
