package triton

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// Read returns a configuration with a service for each version of each model of the
// repository in dir, and notes on what has no effect. Models without a timeout get the given
// target. A faulty model does not prevent the others from being served: a note says what is
// wrong with it, and it has the services that are in before, if any. If no model is left,
// all faults are returned together, as [config.Faults].
func Read(dir string, target time.Duration, before ...config.Service) (c config.Config, notes []string, err error) {
	r, err := openRepository(dir)
	if err != nil {
		return c, nil, fmt.Errorf("the model repository: %w", err)
	}
	defer r.root.Close()
	c = config.Default()
	names, err := r.folders(".")
	if err != nil {
		return c, nil, err
	}
	var faults config.Faults
	// faulty are notes on faulty models, which come after the others.
	var faulty []string
	var read []model
	var kept []config.Service
	for _, name := range names {
		m := model{repository: r, name: name, service: config.DefaultService()}
		err := m.read()
		if err == nil {
			err = m.valid(target)
		}
		for _, note := range m.notes {
			notes = append(notes, fmt.Sprintf("model %q: %s", name, note))
		}
		// An unsupported model is expected, so it is a note. A faulty one is an error.
		switch reason, ok := errors.AsType[unsupported](err); {
		case ok:
			notes = append(notes, fmt.Sprintf("skipping model %q: %s", name, string(reason)))
		case err != nil:
			var fault config.Faults
			file := r.path(name)
			if m.line > 0 {
				file = r.path(name, configFile)
			}
			fault.At(file, m.line, "%v", err)
			old := slices.DeleteFunc(slices.Clone(before), func(s config.Service) bool { return s.Base() != name })
			verb := "skipping"
			if kept = append(kept, old...); len(old) > 0 {
				verb = "not changing"
			}
			faulty = append(faulty, fmt.Sprintf("%s model %q: %v", verb, name, fault))
			faults.At(file, m.line, "model %q: %v", name, err)
		default:
			read = append(read, m)
		}
	}
	settled := settle(&c, read, target)
	c.Services = config.Versioned(append(c.Services, kept...))
	slices.SortStableFunc(c.Services, func(a, b config.Service) int { return strings.Compare(a.Base(), b.Base()) })
	switch {
	case len(c.Services) == 0 && len(faults) > 0:
		return c, notes, faults
	case len(c.Services) == 0:
		return c, notes, fmt.Errorf("no model of %s can be served: each must be a folder with a version, such as resnet50/1/model.onnx\n%s", dir, strings.Join(notes, "\n"))
	case len(c.Services) > config.MaxServices:
		return c, notes, fmt.Errorf("%s has %d versions of models, and the limit is %d: run several daemons", dir, len(c.Services), config.MaxServices)
	}
	return c, slices.Concat(notes, faulty, settled), nil
}

// valid sets the target of a model without one, and validates its services.
func (m *model) valid(target time.Duration) error {
	c := config.Default()
	c.Services = m.services
	for i := range c.Services {
		if !m.hasTarget {
			c.Services[i].Target = target
		}
	}
	return c.Validate()
}

// settle adds the services of models and sets the device, which depends on all of them. It
// returns notes.
func settle(c *config.Config, read []model, target time.Duration) (notes []string) {
	var without, onCPU []string
	for _, m := range read {
		c.Services = append(c.Services, m.services...)
		if !m.hasTarget {
			without = append(without, m.name)
		}
		if m.cpu {
			onCPU = append(onCPU, m.name)
		}
	}
	if len(without) > 0 {
		notes = append(notes, fmt.Sprintf("without default_timeout_microseconds the target is %v (--target): %s", target, strings.Join(without, ", ")))
	}
	switch {
	case len(onCPU) == len(read):
		c.Device = config.DeviceCPU
	case len(onCPU) > 0:
		notes = append(notes, fmt.Sprintf("KIND_CPU has no effect, because other models may use a GPU; to use both, declare them as [[device]] and name the CPU in on of %s", strings.Join(onCPU, ", ")))
	}
	return notes
}
