package fake

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

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
