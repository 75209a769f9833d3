package cuda

import (
	"fmt"
	"strconv"
	"strings"
)

// leastPrefix is how many characters of a UUID, after GPU- or MIG-, name it: with
// fewer a typing error would find something.
const leastPrefix = 4

// Target is what a name stands for: a whole device, or an instance of it.
type Target struct {
	Device   Device
	Instance *Instance        // nil for a whole device
	Compute  *ComputeInstance // nil for a whole device
}

// UUID returns what CUDA_VISIBLE_DEVICES takes.
func (t Target) UUID() string {
	if t.Compute != nil {
		return t.Compute.UUID
	}
	return t.Device.UUID
}

// Find reads the facts and looks a name up in them.
func (h *Host) Find(name string) (Target, error) {
	facts, err := h.Facts()
	if err != nil {
		return Target{}, err
	}
	return facts.Find(name)
}

// Find returns the device or MIG device of a name: an index, a PCI address with
// or without its domain, or a UUID or the unique beginning of one. The error is
// an ErrNotFound or ErrAmbiguous, or the device's own Fault.
func (f Facts) Find(name string) (Target, error) {
	name = strings.TrimSpace(name)
	var found []Target
	switch {
	case name == "":
	case hasPrefixFold(name, "GPU-"), hasPrefixFold(name, "MIG-"):
		found = f.byUUID(name)
	case strings.Contains(name, ":"):
		found = f.byPCI(name)
	default:
		found = f.byIndex(name)
	}
	switch {
	case len(found) == 0:
		return Target{}, fmt.Errorf("gpu = %q: %w; this host has %s", name, ErrNotFound, f.names())
	case len(found) > 1:
		return Target{}, fmt.Errorf("gpu = %q: %w: it fits %s and %s; write more of the UUID", name, ErrAmbiguous, found[0].UUID(), found[1].UUID())
	}
	return found[0], found[0].Device.Fault
}

func (f Facts) byIndex(name string) (found []Target) {
	index, err := strconv.Atoi(name)
	for _, d := range f.Devices {
		if err == nil && d.Index == index {
			found = append(found, Target{Device: d})
		}
	}
	return found
}

func (f Facts) byPCI(name string) (found []Target) {
	want, ok := parsePCI(name)
	for _, d := range f.Devices {
		if have, known := parsePCI(d.PCI); ok && known && have == want {
			found = append(found, Target{Device: d})
		}
	}
	return found
}

// parsePCI reads domain, bus, device and function, in hexadecimal.
func parsePCI(s string) (a [4]uint64, ok bool) {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	if strings.Count(s, ":") == 1 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) == 3 {
		parts = append(parts, "0")
	}
	if len(parts) != len(a) {
		return a, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 16, 32)
		if err != nil {
			return a, false
		}
		a[i] = n
	}
	return a, true
}

func (f Facts) byUUID(name string) (found []Target) {
	for _, t := range f.targets() {
		switch {
		case strings.EqualFold(t.UUID(), name):
			return []Target{t}
		case len(name) >= len("GPU-")+leastPrefix && hasPrefixFold(t.UUID(), name):
			found = append(found, t)
		}
	}
	return found
}

// targets returns all devices and MIG devices.
func (f Facts) targets() (all []Target) {
	for _, d := range f.Devices {
		all = append(all, Target{Device: d})
		for i := range d.Instances {
			for c := range d.Instances[i].Compute {
				all = append(all, Target{Device: d, Instance: &d.Instances[i], Compute: &d.Instances[i].Compute[c]})
			}
		}
	}
	return all
}

// names lists what there is, for an error.
func (f Facts) names() string {
	var all []string
	for _, t := range f.targets() {
		if t.Compute != nil {
			all = append(all, t.UUID())
		} else {
			all = append(all, t.Device.String())
		}
	}
	if len(all) == 0 {
		return "no GPU"
	}
	return strings.Join(all, ", ")
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
