package mig

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/cuda"
)

// Format is the version of a Record's JSON.
const Format = "overlapd-mig/1"

// The states of an entry, which say how far the creation of an instance got.
const (
	// Creating: the GPU instance was about to be requested, so it may exist.
	Creating = "creating"
	// Bare: the GPU instance exists, and the compute instance may exist.
	Bare = "bare"
	// Ready: both exist.
	Ready = "ready"
)

// entry is an instance that overlapd created, or is about to create.
type entry struct {
	State     string         `json:"state"`
	Profile   string         `json:"profile"`
	Placement cuda.Placement `json:"placement"`
	// Instance is not known in Creating. Compute and the UUID of the MIG device are
	// known only in Ready.
	Instance uint32 `json:"gpu_instance"`
	Compute  uint32 `json:"compute_instance"`
	UUID     string `json:"uuid"`
}

func (e entry) String() string {
	if e.State == Creating {
		return fmt.Sprintf("%s at %s", e.Profile, e.Placement)
	}
	return fmt.Sprintf("GPU instance %d (%s at %s)", e.Instance, e.Profile, e.Placement)
}

// Record lists everything that overlapd created on one GPU, which is named by its UUID.
type Record struct {
	Format string `json:"format"`
	GPU    string `json:"gpu"`
	// Boot is the host's boot ID, as the function Boot returns it. Instances do not
	// survive a reboot.
	Boot string `json:"boot"`
	// EnabledMode is set if overlapd turned the MIG mode on, or was about to.
	EnabledMode bool    `json:"enabled_mode"`
	Entries     []entry `json:"instances"`
}

// Empty reports whether there is nothing to release.
func (r Record) Empty() bool { return !r.EnabledMode && len(r.Entries) == 0 }

func (r Record) clone() Record {
	r.Entries = slices.Clone(r.Entries)
	return r
}

// on returns the record for a GPU and a boot: a copy of this one, or an empty one if this
// is from another boot, whose instances no longer exist.
func (r Record) on(gpu, boot string) (Record, error) {
	switch {
	case r.Empty(), r.Boot != boot:
		return Record{Format: Format, GPU: gpu, Boot: boot}, nil
	case r.GPU != gpu:
		return r, fmt.Errorf("%w: it is of %s, and %s is to be divided; release the first with the configuration that made it", ErrRecord, r.GPU, gpu)
	}
	return r.clone(), nil
}

// ParseRecord decodes the JSON of a record. The error wraps ErrRecord.
func ParseRecord(data []byte) (r Record, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w; see nvidia-smi mig -lgi for what exists, and remove it by hand", ErrRecord, err)
	}
	if r.Format != Format {
		return Record{}, fmt.Errorf("%w: format %q, and this version reads %q; release with the version that wrote it", ErrRecord, r.Format, Format)
	}
	for _, e := range r.Entries {
		if !slices.Contains([]string{Creating, Bare, Ready}, e.State) || CheckProfile(e.Profile) != nil ||
			e.Placement.Start < 0 || e.Placement.Size <= 0 || e.State == Ready && !strings.HasPrefix(e.UUID, "MIG-") {
			return Record{}, fmt.Errorf("%w: instance %+v makes no sense; see nvidia-smi mig -lgi for what exists", ErrRecord, e)
		}
	}
	return r, nil
}

// Boot returns the boot ID of the host, "" if it cannot be read.
func Boot() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// find returns the instance of an entry, or nil if it does not exist. The driver reuses IDs
// of destroyed instances, so the profile and the placement must match as well; stranger
// checks the compute instance.
func (e entry) find(d cuda.Device) *cuda.Instance {
	for i := range d.Instances {
		have := &d.Instances[i]
		if have.Profile == e.Profile && have.Placement == e.Placement && (e.State == Creating || have.ID == e.Instance) {
			return have
		}
	}
	return nil
}

// stranger returns the index of a compute instance that overlapd did not create in an
// instance of ours, or -1 if there is none.
func (e entry) stranger(have *cuda.Instance) int {
	for i, c := range have.Compute {
		if e.State == Ready && c.UUID != e.UUID || have.UUID == "" {
			return i
		}
	}
	return -1
}
