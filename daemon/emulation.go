package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/models"
)

// ErrEmulated is returned when an emulated device is to be measured: it is made
// of measurements, and none of it may be taken for one.
var ErrEmulated = errors.New(`the device is emulated: there is nothing to measure; fit a predictor with overlapd train to the data that its profile was made of`)

// emulation is a modelled device, and the models of the services on it.
type emulation struct {
	device emulated.Device
	name   string // of the device that it is made after, "" if unknown
	text   string // for people
	known  map[string]knownModel
}

// knownModel is a model whose times the device knows.
type knownModel struct {
	emulated.Model
	longest int // sequence, 0 if it takes none
}

// EmulatedDevice returns what the services of a configuration would run on, in
// words. It fails if the profile cannot be used, or does not know one of their
// models.
func EmulatedDevice(c config.Config) (string, error) {
	e, err := newEmulation(&c)
	if err != nil {
		return "", err
	}
	return e.text, nil
}

// newEmulation reads the profile of a configuration and finds the models of its
// services in it.
func newEmulation(c *config.Config) (*emulation, error) {
	data, err := os.ReadFile(c.DeviceProfile)
	if err != nil {
		return nil, err
	}
	profile, err := device.ReadFile(c.DeviceProfile)
	if err != nil {
		return nil, err
	}
	model, err := device.NewModel(profile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.DeviceProfile, err)
	}
	sum := sha256.Sum256(data)
	e := &emulation{device: model, name: profile.Device}
	e.text = config.DeviceEmulated + " " + orName(profile.Device, filepath.Base(c.DeviceProfile))
	e.know(model.Models(), hex.EncodeToString(sum[:]))
	if err := e.check(c); err != nil {
		return nil, fmt.Errorf("%s: %w", c.DeviceProfile, err)
	}
	return e, nil
}

func orName(name, other string) string {
	if name == "" {
		return other
	}
	return name
}

// know takes in the models that the device knows; hash is that of its profile.
func (e *emulation) know(list []device.ModelInfo, hash string) {
	e.known = make(map[string]knownModel, len(list))
	for at := range list {
		m := &list[at]
		own := knownModel{emulated.Model{Name: m.Name, Position: at, Operators: m.Operators, Hash: hash, Sizes: m.Sizes}, slices.Max(m.SeqLens)}
		if own.longest > 0 {
			own.SeqLens = m.SeqLens
		}
		e.known[m.Name] = own
	}
}

// check returns every fault of services that the device cannot run.
func (e *emulation) check(c *config.Config) error {
	var faults []error
	for i := range c.Services {
		s := &c.Services[i]
		name := strings.TrimPrefix(s.Model, config.EmulatedPrefix)
		m, ok := e.known[name]
		if !ok {
			names := strings.Join(slices.Sorted(maps.Keys(e.known)), ", ")
			faults = append(faults, fmt.Errorf("service %s: %q is not in the profile, which knows %s", s.Name, name, names))
			continue
		}
		if most := slices.Max(m.Sizes); s.MaxBatch > most {
			faults = append(faults, fmt.Errorf("service %s: max_batch is %d, the largest batch of %s in the profile %d", s.Name, s.MaxBatch, name, most))
		}
	}
	return errors.Join(faults...)
}

// runner returns what takes the place of the workers.
func (e *emulation) runner(c *config.Config, events func(executor.Event)) (runner, error) {
	o := emulated.Options{Device: e.device, Seed: uint64(c.DeviceSeed), Events: events}
	for i := range c.Services {
		o.Services = append(o.Services, e.service(models.ServiceID(i), &c.Services[i], &c.Worker))
	}
	exec, err := emulated.New(o)
	if err != nil {
		return nil, err
	}
	return &emulatedRunner{exec, e}, nil
}

// emulatedRunner is an emulated executor that takes services as workers do.
type emulatedRunner struct {
	*emulated.Executor
	emulation *emulation
}

// Add adds a service with the model that its load names, as a configuration
// does.
func (r *emulatedRunner) Add(spec executor.ServiceSpec) error {
	m, ok := r.emulation.known[strings.TrimPrefix(spec.Load.ModelPath, config.EmulatedPrefix)]
	if !ok {
		return fmt.Errorf("service %s: %q is not in the device's profile", spec.Name, spec.Load.ModelPath)
	}
	return r.Executor.Add(emulated.Service{
		ID: spec.ID, Name: spec.Name, Model: m.Model, InputBytes: spec.InputBytes, OutputBytes: spec.OutputBytes,
	})
}

// service describes a service to the executor.
func (e *emulation) service(id models.ServiceID, s *config.Service, w *config.Worker) emulated.Service {
	return emulated.Service{
		ID: id, Name: s.Name, Model: e.known[strings.TrimPrefix(s.Model, config.EmulatedPrefix)].Model,
		InputBytes: w.InputBytes, OutputBytes: w.OutputBytes,
	}
}
