package daemon

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/textfile"
)

// ErrEmulated is returned when an emulated device is to be measured. It is made of
// measurements, and its times must not be mistaken for new ones.
var ErrEmulated = errors.New(`the device is emulated and cannot be measured; fit a predictor with overlapd train to the data of its profile`)

// emulation is a modelled device with the models of its services.
type emulation struct {
	device emulated.Times

	// name is the device that was measured for the profile, or "" if it is not known. text
	// describes the emulated device for people.
	name  string
	text  string
	known []device.ModelInfo

	// hash is that of the profile, and units is how many it divides the device into.
	hash  string
	units int

	// share is the percentage of the device, 0 for the whole.
	share int
}

// maxProfileBytes limits what is hashed of a profile. Reading the profile has a limit of
// its own.
const maxProfileBytes = 64 << 20

// newEmulation reads the profile of a configuration and checks that it has the models of
// all services.
func newEmulation(c *config.Config) (*emulation, error) {
	profile, err := device.ReadFile(c.DeviceProfile)
	if err != nil {
		return nil, err
	}
	// The file is read again for its hash, by which the loop tells kinds of devices apart.
	data, err := textfile.ReadRegular(c.DeviceProfile, maxProfileBytes)
	if err != nil {
		return nil, err
	}
	model, err := device.NewModel(profile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.DeviceProfile, err)
	}
	sum := sha256.Sum256(data)
	e := &emulation{device: model, name: profile.Device, known: model.Models(), units: model.Units(), hash: hex.EncodeToString(sum[:])}
	// Under this policy each share is a device of its own with one service.
	if c.Policy == config.Static && len(c.Services) == 1 {
		e.share = c.Services[0].MPS.Percentage
		if e.device, err = model.InShare(e.share); err != nil {
			return nil, err
		}
	}
	e.text = config.DeviceEmulated + ": " + cmp.Or(profile.Device, filepath.Base(c.DeviceProfile))
	if e.share > 0 {
		e.text += fmt.Sprintf(", %d %%", e.share)
	}
	if err := e.check(c); err != nil {
		return nil, fmt.Errorf("%s: %w", c.DeviceProfile, err)
	}
	return e, nil
}

// model returns what the profile knows about the model of a service, or nil.
func (e *emulation) model(s *config.Service) *device.ModelInfo {
	name := strings.TrimPrefix(s.Model, config.EmulatedPrefix)
	if i := slices.IndexFunc(e.known, func(m device.ModelInfo) bool { return m.Name == name }); i >= 0 {
		return &e.known[i]
	}
	return nil
}

// check returns all faults of services that the device cannot run.
func (e *emulation) check(c *config.Config) error {
	var faults []error
	for i := range c.Services {
		s := &c.Services[i]
		m := e.model(s)
		if m == nil {
			var names []string
			for i := range e.known {
				names = append(names, e.known[i].Name)
			}
			slices.Sort(names)
			faults = append(faults, fmt.Errorf("service %s: model %q is not in the profile, which has %s",
				s.Name, strings.TrimPrefix(s.Model, config.EmulatedPrefix), strings.Join(names, ", ")))
			continue
		}
		if most := slices.Max(m.Sizes); s.MaxBatch > most {
			faults = append(faults, fmt.Errorf("service %s: max_batch is %d, but the largest batch of %s in the profile is %d: lower max_batch", s.Name, s.MaxBatch, m.Name, most))
		}
	}
	return errors.Join(faults...)
}
