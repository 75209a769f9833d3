package emulated

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments"
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

	// Events is told that the services are ready, and when they are not any
	// more. It must return soon.
	Events func(executor.Event)
}

// Service is what the executor must know of a service.
type Service struct {
	ID          models.ServiceID
	Name        string
	Model       Model
	InputBytes  int64 // size of the input arena, 0 for segments.DefaultInputBytes
	OutputBytes int64 // size of the output arena, 0 for segments.DefaultOutputBytes
}

func (o Options) withDefaults() Options {
	if o.Events == nil {
		o.Events = func(executor.Event) {}
	}
	o.Services = slices.Clone(o.Services)
	for i := range o.Services {
		s := &o.Services[i]
		if s.InputBytes == 0 {
			s.InputBytes = segments.DefaultInputBytes
		}
		if s.OutputBytes == 0 {
			s.OutputBytes = segments.DefaultOutputBytes
		}
	}
	return o
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
	fault(len(o.Services) == 0, "no service")
	seen := map[models.ServiceID]bool{}
	for i := range o.Services {
		s := &o.Services[i]
		fault(seen[s.ID], "two services %d", s.ID)
		seen[s.ID] = true
		fault(s.Model.Position < 0, "service %s: the model is at %d", s.Name, s.Model.Position)
		fault(s.Model.Operators < 1, "service %s: a model of %d operators", s.Name, s.Model.Operators)
	}
	return errors.Join(faults...)
}
