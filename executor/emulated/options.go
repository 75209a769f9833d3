package emulated

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Device says how long operator groups take. Their spans name models by the
// position that they have on the device. It is called by one goroutine at a
// time.
type Device interface {
	// Covers reports whether the device knows how long a group takes. It is
	// asked nothing else of a group that it does not cover.
	Covers(models.Group) bool

	// Latency returns what a group takes in the middle of its runs.
	Latency(models.Group) time.Duration

	// Sample returns what one run of a group takes.
	Sample(models.Group, *rand.Rand) time.Duration
}

// Options of an executor.
type Options struct {
	Device   Device
	Seed     uint64 // of what is drawn: the same rounds take the same times
	Services []Service

	// ReleaseGrace is for how long Remove waits for inputs and outputs that are
	// still in use, 0 for 30 s.
	ReleaseGrace time.Duration

	// Events is told that the services are ready, and when they are not any
	// more. It is called from several goroutines and must return soon.
	Events func(executor.Event)
}

// Service is what the executor must know of a service.
type Service struct {
	ID          models.ServiceID
	Name        string
	Model       Model
	InputBytes  int64 // size of the input arena, 0 for wire.DefaultInputBytes
	OutputBytes int64 // size of the output arena, 0 for wire.DefaultOutputBytes
}

func (o Options) withDefaults() Options {
	if o.ReleaseGrace == 0 {
		o.ReleaseGrace = releaseGrace
	}
	if o.Events == nil {
		o.Events = func(executor.Event) {}
	}
	return o
}

func (s Service) withDefaults() Service {
	if s.InputBytes == 0 {
		s.InputBytes = wire.DefaultInputBytes
	}
	if s.OutputBytes == 0 {
		s.OutputBytes = wire.DefaultOutputBytes
	}
	return s
}

// validate returns every fault of options that have their defaults.
func (o *Options) validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{executor.ErrOptions}, args...)...))
		}
	}
	fault(o.Device == nil, "no device")
	fault(o.ReleaseGrace < 0, "release grace of %v", o.ReleaseGrace)
	fault(len(o.Services) == 0, "no service")
	seen := map[models.ServiceID]bool{}
	for i := range o.Services {
		s := &o.Services[i]
		fault(seen[s.ID], "two services %d", s.ID)
		seen[s.ID] = true
		faults = append(faults, s.validate())
	}
	return errors.Join(faults...)
}

// validate returns what is wrong with a service.
func (s *Service) validate() error {
	switch {
	case s.Model.Position < 0:
		return fmt.Errorf("%w: service %s: the model is at %d", executor.ErrOptions, s.Name, s.Model.Position)
	case s.Model.Operators < 1:
		return fmt.Errorf("%w: service %s: a model of %d operators", executor.ErrOptions, s.Name, s.Model.Operators)
	}
	return nil
}
