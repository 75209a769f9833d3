package cuda

import (
	"cmp"
	"errors"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// MIG is how a device can be partitioned.
type MIG struct {
	Capable bool `json:"capable"`
	Enabled bool `json:"enabled"`
	// Pending is set while a change of the mode waits for a reset.
	Pending bool `json:"pending"`
	// Listed is set when placements and all GPU instances are known, also those
	// without a compute instance. Without privileges they are not.
	Listed   bool      `json:"listed"`
	Why      error     `json:"-"`      // why they are not listed, or why not even the mode is known
	Slices   int       `json:"slices"` // of memory; 0 if unknown
	Profiles []Profile `json:"profiles"`
}

// Profile returns the profile of a name.
func (m MIG) Profile(name string) (Profile, bool) {
	i := slices.IndexFunc(m.Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return m.Profiles[i], true
}

// Instance is a GPU instance.
type Instance struct {
	ID        uint32            `json:"id"`      // on its GPU; the driver gives it again after the instance is destroyed
	Profile   string            `json:"profile"` // "" when the driver has one that NVML does not list
	Placement Placement         `json:"placement"`
	Compute   []ComputeInstance `json:"compute"` // by ID
	// UUID is the MIG device's when one compute instance covers the whole
	// instance, which is how overlapd uses it, else "".
	UUID string `json:"uuid"`
}

// ComputeInstance is the part of an instance that CUDA sees as a MIG device.
type ComputeInstance struct {
	ID        uint32             `json:"id"`
	UUID      string             `json:"uuid"` // MIG-…
	Slices    int                `json:"compute_slices"`
	Memory    Reading[Memory]    `json:"memory"`
	Processes Reading[[]Process] `json:"processes"`
}

// Processes returns who computes in an instance, as far as is known.
func (i Instance) Processes() (all []Process) {
	for _, c := range i.Compute {
		all = append(all, c.Processes.Value...)
	}
	return all
}

// readMIG fills in mode, profiles and instances. The error concerns the whole
// device; a device without MIG is none.
func (h *Host) readMIG(d *Device, handle nvml.Device) error {
	if h.missing(symbolMIGMode) != nil {
		return nil
	}
	current, pending, code := handle.GetMigMode()
	if code != nvml.SUCCESS {
		err := check(code, "nvmlDeviceGetMigMode", d.UUID)
		if !errors.Is(err, ErrUnsupported) {
			d.MIG.Why = err // it may have MIG
		}
		return fatal(err)
	}
	d.MIG.Capable = true
	d.MIG.Enabled = current == nvml.DEVICE_MIG_ENABLE
	d.MIG.Pending = current != pending
	all, why, err := profiles(handle, d.UUID, d.Memory.Value.Total)
	if err != nil {
		return err
	}
	d.MIG.Profiles, d.MIG.Why, d.MIG.Slices = all, why, memorySlices(all)
	d.MIG.Listed = why == nil && len(all) > 0
	if !d.MIG.Enabled {
		return nil
	}
	return h.readInstances(d, handle)
}

// memorySlices returns where the last placement ends.
func memorySlices(all []Profile) (n int) {
	for _, p := range all {
		for _, place := range p.Placements {
			n = max(n, place.Start+place.Size)
		}
	}
	return n
}

func (h *Host) readInstances(d *Device, handle nvml.Device) error {
	found, err := h.migDevices(d, handle)
	if err != nil {
		return err
	}
	if d.MIG.Listed {
		if err := listInstances(d, handle); errors.Is(err, ErrPermission) {
			d.MIG.Listed, d.MIG.Why, d.Instances = false, err, nil
		} else if err != nil {
			return err
		}
	}
	for _, m := range found {
		d.addCompute(m)
	}
	for i := range d.Instances {
		d.Instances[i].finish(d.MIG)
	}
	slices.SortFunc(d.Instances, func(a, b Instance) int {
		return cmp.Or(a.Placement.Start-b.Placement.Start, cmp.Compare(a.ID, b.ID))
	})
	return nil
}

// listInstances asks for the GPU instances, which needs privileges.
func listInstances(d *Device, handle nvml.Device) error {
	for _, p := range d.MIG.Profiles {
		if p.info.InstanceCount == 0 {
			continue // the binding would index an empty list
		}
		all, code := handle.GetGpuInstances(&p.info)
		if err := check(code, "nvmlDeviceGetGpuInstances", d.UUID); err != nil {
			return err
		}
		for _, gi := range all {
			info, code := gi.GetInfo()
			if err := check(code, "nvmlGpuInstanceGetInfo", d.UUID); err != nil {
				return err
			}
			d.addInstance(Instance{ID: info.Id, Profile: p.Name, Placement: Placement{int(info.Placement.Start), int(info.Placement.Size)}})
		}
	}
	return nil
}

// addInstance adds an instance once: profiles may share an ID.
func (d *Device) addInstance(i Instance) {
	if d.instance(i.ID) == nil {
		d.Instances = append(d.Instances, i)
	}
}

func (d *Device) instance(id uint32) *Instance {
	for i := range d.Instances {
		if d.Instances[i].ID == id {
			return &d.Instances[i]
		}
	}
	return nil
}

// addCompute hangs a MIG device into its instance, which it makes up where the
// instances could not be listed.
func (d *Device) addCompute(m migDevice) {
	if d.instance(m.instance) == nil {
		d.Instances = append(d.Instances, Instance{ID: m.instance, Profile: m.profile})
	}
	gi := d.instance(m.instance)
	gi.Compute = append(gi.Compute, m.ComputeInstance)
}

// finish sorts the compute instances and finds the one that covers all.
func (i *Instance) finish(m MIG) {
	slices.SortFunc(i.Compute, func(a, b ComputeInstance) int { return cmp.Compare(a.ID, b.ID) })
	p, ok := m.Profile(i.Profile)
	if ok && len(i.Compute) == 1 && i.Compute[0].Slices == p.Slices {
		i.UUID = i.Compute[0].UUID
	}
}

// migDevice is a compute instance with what is needed to find its place.
type migDevice struct {
	ComputeInstance
	instance uint32
	profile  string // a guess from its attributes, for want of a better one
}

// migDevices reads the MIG devices of a device, which needs no privileges.
func (h *Host) migDevices(d *Device, handle nvml.Device) (all []migDevice, err error) {
	count, code := handle.GetMaxMigDeviceCount()
	if err := check(code, "nvmlDeviceGetMaxMigDeviceCount", d.UUID); err != nil {
		return nil, err
	}
	for i := range min(count, maxDevices) {
		m, code := handle.GetMigDeviceHandleByIndex(i)
		if code == nvml.ERROR_NOT_FOUND {
			continue // not created
		}
		if err := check(code, "nvmlDeviceGetMigDeviceHandleByIndex", d.UUID); err != nil {
			return nil, err
		}
		one, err := h.describeMIG(d, m)
		if errors.Is(err, ErrNotFound) {
			continue // destroyed since
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func (h *Host) describeMIG(d *Device, handle nvml.Device) (m migDevice, err error) {
	uuid, code := handle.GetUUID()
	if err := check(code, "nvmlDeviceGetUUID", "a MIG device of "+d.UUID); err != nil {
		return m, err
	}
	gi, code := handle.GetGpuInstanceId()
	if err := check(code, "nvmlDeviceGetGpuInstanceId", uuid); err != nil {
		return m, err
	}
	ci, code := handle.GetComputeInstanceId()
	if err := check(code, "nvmlDeviceGetComputeInstanceId", uuid); err != nil {
		return m, err
	}
	attributes, code := handle.GetAttributes()
	if err := check(code, "nvmlDeviceGetAttributes", uuid); err != nil {
		return m, err
	}
	m.ID, m.UUID, m.instance = uint32(ci), uuid, uint32(gi)
	m.Slices = int(attributes.ComputeInstanceSliceCount)
	m.profile = d.guessProfile(attributes)
	m.Memory = memory(handle, uuid)
	m.Processes = h.processes(handle, uuid)
	return m, nil
}

// guessProfile finds the profile that fits what a MIG device says of its
// instance: slices and memory, and the optical flow engine that only the media
// profiles and the whole GPU have.
func (d *Device) guessProfile(a nvml.DeviceAttributes) string {
	name := profileName(int(a.GpuInstanceSliceCount), a.MemorySizeMB, d.Memory.Value.Total, "")
	for _, p := range d.MIG.Profiles {
		plain := profileName(p.Slices, p.Memory/mebi, d.Memory.Value.Total, "")
		if plain == name && p.info.OfaCount == a.SharedOfaCount {
			return p.Name
		}
	}
	return name
}
