package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/models"
)

const (
	// EmulatedPrefix starts a model of an emulated device.
	EmulatedPrefix = "emulated:"

	// emulatedLabel is what stands wherever it is said what runs a model.
	emulatedLabel = "emulated"
)

// ErrEmulated is returned when an emulated device is to be measured: it is made
// of measurements, and none of it may be taken for one.
var ErrEmulated = errors.New(`the device is emulated: there is nothing to measure; fit a predictor with overlapd train to the data that its profile was made of`)

// Emulated reports whether nothing is computed, and groups only take the time
// that they would on a device.
func (c *Config) Emulated() bool { return c.Device == emulatedLabel }

// emulation is a modelled device, and the models of the services on it.
type emulation struct {
	device  emulated.Device
	name    string           // of the device that it is made after, "" if unknown
	text    string           // for people
	models  []emulated.Model // of each service
	longest []int            // sequence of each service that the device knows, 0 if it takes none
}

// EmulatedDevice returns what the services of a configuration would run on, in
// words. It fails if the profile cannot be used, or does not know one of their
// models.
func EmulatedDevice(c Config) (string, error) {
	e, err := newEmulation(&c)
	if err != nil {
		return "", err
	}
	return e.text, nil
}

// newEmulation reads the profile of a configuration and finds the models of its
// services in it.
func newEmulation(c *Config) (*emulation, error) {
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
	e.text = emulatedLabel + " " + orName(profile.Device, filepath.Base(c.DeviceProfile))
	if err := e.find(c, model.Models(), hex.EncodeToString(sum[:])); err != nil {
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

// find finds the models of the services among those that the device knows.
func (e *emulation) find(c *Config, known []device.ModelInfo, hash string) error {
	var faults []error
	for i := range c.Services {
		s := &c.Services[i]
		name := strings.TrimPrefix(s.Model, EmulatedPrefix)
		at := slices.IndexFunc(known, func(m device.ModelInfo) bool { return m.Name == name })
		if at < 0 {
			faults = append(faults, fmt.Errorf("service %s: %q is not in the profile, which knows %s", s.Name, name, names(known)))
			continue
		}
		m := &known[at]
		if most := slices.Max(m.Sizes); s.MaxBatch > most {
			faults = append(faults, fmt.Errorf("service %s: max_batch is %d, the largest batch of %s in the profile %d", s.Name, s.MaxBatch, name, most))
		}
		own := emulated.Model{Name: name, Position: at, Operators: m.Operators, Hash: hash, Sizes: m.Sizes}
		longest := slices.Max(m.SeqLens)
		if longest > 0 {
			own.SeqLens = m.SeqLens
		}
		e.models, e.longest = append(e.models, own), append(e.longest, longest)
	}
	return errors.Join(faults...)
}

func names(known []device.ModelInfo) string {
	list := make([]string, len(known))
	for i := range known {
		list[i] = known[i].Name
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// limit lets the services take nothing that the device does not know.
func (e *emulation) limit(services []*Service) {
	for i, s := range services {
		s.MaxQueryBatch = min(s.MaxQueryBatch, slices.Max(e.models[i].Sizes))
		s.MaxSeqLen = e.longest[i]
	}
}

// runner returns what takes the place of the workers.
func (e *emulation) runner(c *Config, events func(executor.Event)) (runner, error) {
	o := emulated.Options{Device: e.device, Seed: uint64(c.DeviceSeed), Events: events}
	for i := range c.Services {
		o.Services = append(o.Services, emulated.Service{
			ID: models.ServiceID(i), Name: c.Services[i].Name, Model: e.models[i],
			InputBytes: c.Worker.InputBytes, OutputBytes: c.Worker.OutputBytes,
		})
	}
	return emulated.New(o)
}
