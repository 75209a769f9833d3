package mig

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/overlapd/overlapd/cuda"
)

// maxWants bounds the instances of one GPU; hardware has 7.
const maxWants = 16

// Want is an instance that the configuration declares.
type Want struct {
	Profile  string   // as "3g.40gb" or "1g.10gb+me"
	Services []string // that live in it; for messages
}

// profileForm is what nvidia-smi names a GPU instance profile.
var profileForm = regexp.MustCompile(`^[1-9][0-9]?g\.[1-9][0-9]{0,3}gb([+-](me|gfx|me\.all))?$`)

// CheckProfile says what is wrong with the name of a profile, whatever the GPU.
func CheckProfile(name string) error {
	if profileForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%w: profile %q is not of the form 3g.40gb or 1g.10gb+me; nvidia-smi mig -lgip lists them", ErrWant, name)
}

// resolve finds the profiles of what is wanted.
func resolve(d cuda.Device, wants []Want) (all []cuda.Profile, err error) {
	if len(wants) == 0 || len(wants) > maxWants {
		return nil, fmt.Errorf("%w: %d instances are declared for %s; 1 to %d can be", ErrWant, len(wants), d, maxWants)
	}
	for _, w := range wants {
		if err := CheckProfile(w.Profile); err != nil {
			return nil, err
		}
		p, ok := d.MIG.Profile(w.Profile)
		if !ok {
			return nil, fmt.Errorf("%w: %s has no profile %s; it has %s", ErrWant, d, w.Profile, profileNames(d.MIG))
		}
		all = append(all, p)
	}
	return all, nil
}

func profileNames(m cuda.MIG) string {
	var names []string
	for _, p := range m.Profiles {
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
