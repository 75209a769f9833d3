package predictor

import (
	"errors"
	"fmt"
)

// leastKnown is how many models a predictor must know to be of use: it is
// asked about groups of several.
const leastKnown = 2

// Served is what is known of a service's model on this device.
type Served struct {
	Service   string
	Model     string
	Hash      string // "" if unknown
	Operators int
}

// Match returns which model of the file each service has, as its position, or
// -1 for a service whose model is not in the file. It returns an error that
// wraps [ErrDevice] or [ErrModels] and says what differs if the file is of
// another device, if one of its models has another hash or is cut into other
// operators, or if it knows fewer than two of the models.
//
// A model is found by its hash, or by its name where the file or the service
// has none. Where several models of the file have the hash, since they are one
// model in several services, it is that of the same name, or one that no
// service before has.
func (f *File) Match(device string, services []Served) (bind []int, err error) {
	var faults []error
	if f.Device != device {
		faults = append(faults, fmt.Errorf("%w: trained on %q, this is %q", ErrDevice, f.Device, device))
	}
	bind = make([]int, len(services))
	known := map[int]bool{}
	var unknown []string
	for i := range services {
		s := &services[i]
		bind[i] = f.find(s, known)
		if bind[i] < 0 {
			unknown = append(unknown, s.Service)
			continue
		}
		known[bind[i]] = true
		if err := f.Features.Models[bind[i]].fits(s); err != nil {
			faults = append(faults, fmt.Errorf("%w: service %s: %w", ErrModels, s.Service, err))
		}
	}
	if len(known) < leastKnown {
		faults = append(faults, fmt.Errorf("%w: %d of the models served are among those it was trained on, at least %d must be; unknown are those of %q",
			ErrModels, len(known), leastKnown, unknown))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return bind, nil
}

// find returns the position of the model of a service, or -1; known are those
// that others have. One of the same name is taken even if its hash differs, so
// that the difference is told.
func (f *File) find(s *Served, known map[int]bool) int {
	byHash, byName := -1, -1
	for i := range f.Features.Models {
		m := &f.Features.Models[i]
		same := m.Hash != "" && m.Hash == s.Hash
		switch {
		case same && m.Name == s.Model:
			return i
		case same && (byHash < 0 || known[byHash]):
			byHash = i
		case m.Name == s.Model:
			byName = i
		}
	}
	if byHash >= 0 {
		return byHash
	}
	return byName
}

func (m *FeatureModel) fits(s *Served) error {
	var faults []error
	if m.Hash != "" && s.Hash != "" && m.Hash != s.Hash {
		faults = append(faults, fmt.Errorf("model %s was trained with hash %.12s, it has %.12s", m.Name, m.Hash, s.Hash))
	}
	if m.Operators != s.Operators {
		faults = append(faults, fmt.Errorf("model %s was trained with %d operators, it has %d", m.Name, m.Operators, s.Operators))
	}
	return errors.Join(faults...)
}
