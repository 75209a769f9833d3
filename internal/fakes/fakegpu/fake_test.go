package fakegpu_test

import (
	"testing"

	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

// TestTables holds the tables to what NVIDIA's guide says of all of them: seven
// compute slices, eight memory slices, and as many instances as places allow,
// but for the one with all media engines.
func TestTables(t *testing.T) {
	for _, m := range fakegpu.Models {
		for _, p := range m.Profiles {
			end, fit := uint32(0), uint32(0)
			for _, start := range p.Starts {
				if start+p.Size > 8 {
					t.Errorf("%s: profile %d ends at %d", m.Name, p.ID, start+p.Size)
				}
				if start >= end {
					fit, end = fit+1, start+p.Size
				}
			}
			if p.ID == 20 {
				fit = 1
			}
			if p.Max != fit || p.Slices > 7 || p.MemoryMiB > m.MemoryMiB*uint64(p.Size)/8 {
				t.Errorf("%s: profile %+v, want at most %d of it, 7 slices and its share of memory", m.Name, p, fit)
			}
		}
	}
}
