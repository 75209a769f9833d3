package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// MIG is the MIG state of a device.
type MIG struct {
	Capable bool `json:"capable"`
	Enabled bool `json:"enabled"`
	// Pending is set while a change of the mode waits for a reset.
	Pending bool `json:"pending"`
	// Listed is set if all placements and GPU instances are known, including instances
	// without a compute instance. That requires privileges.
	Listed bool `json:"listed"`
	// Why is why they are not listed, or why not even the mode is known.
	Why error `json:"-"`
	// Slices is the number of memory slices, 0 if unknown.
	Slices int `json:"slices"`
	// Profiles are sorted from the smallest to the largest.
	Profiles []Profile `json:"profiles"`
}

// Profile returns the profile with a name.
func (m MIG) Profile(name string) (Profile, bool) {
	i := slices.IndexFunc(m.Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return m.Profiles[i], true
}

// Instance is a GPU instance.
type Instance struct {
	// ID is unique on its GPU. The driver reuses it after the instance is destroyed.
	ID uint32 `json:"id"`
	// Profile is "" if NVML does not list the instance's profile.
	Profile   string    `json:"profile"`
	Placement Placement `json:"placement"`
	// Compute is sorted by ID.
	Compute []computeInstance `json:"compute"`
	// UUID is that of the MIG device if a single compute instance covers the whole
	// instance, as overlapd creates them; otherwise it is "".
	UUID string `json:"uuid"`
}

// computeInstance is a part of an instance that CUDA sees as a MIG device. Its UUID
// begins with "MIG-".
type computeInstance struct {
	ID        uint32             `json:"id"`
	UUID      string             `json:"uuid"`
	Slices    int                `json:"compute_slices"`
	Memory    Reading[memory]    `json:"memory"`
	Processes Reading[[]Process] `json:"processes"`
}

// Processes returns the known processes of all compute instances.
func (i Instance) Processes() (all []Process) {
	for _, c := range i.Compute {
		all = append(all, c.Processes.Value...)
	}
	return all
}

// readMIG reads the mode, the profiles and the instances. The error concerns the whole
// device. Missing support for MIG is not an error.
func (h *Host) readMIG(d *Device, handle nvml.Device) error {
	if !h.symbols[symbolMIGMode] {
		return nil
	}
	current, pending, code := handle.GetMigMode()
	if code != nvml.SUCCESS {
		err := check(code, "nvmlDeviceGetMigMode", d.UUID)
		if !errors.Is(err, ErrUnsupported) {
			d.MIG.Why = err // the device may still support MIG
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
	d.MIG.Profiles, d.MIG.Why = all, why
	for _, p := range all {
		for _, place := range p.Placements {
			d.MIG.Slices = max(d.MIG.Slices, place.Start+place.Size)
		}
	}
	d.MIG.Listed = why == nil && len(all) > 0
	if !d.MIG.Enabled {
		return nil
	}
	return h.readInstances(d, handle)
}

// readInstances merges two sources: the GPU instances, which need privileges to list, and
// the MIG devices, which do not.
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
		if d.instance(m.instance) == nil { // the GPU instances could not be listed
			d.Instances = append(d.Instances, Instance{ID: m.instance, Profile: m.profile})
		}
		gi := d.instance(m.instance)
		gi.Compute = append(gi.Compute, m.computeInstance)
	}
	for i := range d.Instances {
		gi := &d.Instances[i]
		slices.SortFunc(gi.Compute, func(a, b computeInstance) int { return cmp.Compare(a.ID, b.ID) })
		p, ok := d.MIG.Profile(gi.Profile)
		if ok && len(gi.Compute) == 1 && gi.Compute[0].Slices == p.Slices {
			gi.UUID = gi.Compute[0].UUID
		}
	}
	slices.SortFunc(d.Instances, func(a, b Instance) int {
		return cmp.Or(a.Placement.Start-b.Placement.Start, cmp.Compare(a.ID, b.ID))
	})
	return nil
}

// listInstances lists the GPU instances, which needs privileges.
func listInstances(d *Device, handle nvml.Device) error {
	for _, p := range d.MIG.Profiles {
		if p.info.InstanceCount == 0 {
			continue // go-nvml would index an empty slice
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
			if d.instance(info.Id) == nil { // several profiles may share an ID
				d.Instances = append(d.Instances, Instance{ID: info.Id, Profile: p.Name, Placement: Placement{int(info.Placement.Start), int(info.Placement.Size)}})
			}
		}
	}
	return nil
}

func (d *Device) instance(id uint32) *Instance {
	i := slices.IndexFunc(d.Instances, func(i Instance) bool { return i.ID == id })
	if i < 0 {
		return nil
	}
	return &d.Instances[i]
}

// migDevice is a compute instance with the GPU instance that it belongs to.
type migDevice struct {
	computeInstance
	instance uint32

	// profile is derived from the attributes of the device, and is used if the GPU
	// instances cannot be listed.
	profile string
}

// migDevices lists the MIG devices of a device, which needs no privileges.
func (h *Host) migDevices(d *Device, handle nvml.Device) (all []migDevice, err error) {
	count, code := handle.GetMaxMigDeviceCount()
	if err := check(code, "nvmlDeviceGetMaxMigDeviceCount", d.UUID); err != nil {
		return nil, err
	}
	for i := range min(count, maxDevices) {
		m, code := handle.GetMigDeviceHandleByIndex(i)
		if code == nvml.ERROR_NOT_FOUND {
			continue // no MIG device with this index exists
		}
		if err := check(code, "nvmlDeviceGetMigDeviceHandleByIndex", d.UUID); err != nil {
			return nil, err
		}
		one, err := h.describeMIG(d, m)
		if errors.Is(err, ErrNotFound) {
			continue // destroyed in the meantime
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// describeMIG reads one MIG device. The error wraps ErrNotFound if the device was
// destroyed while it was being read.
func (h *Host) describeMIG(d *Device, handle nvml.Device) (m migDevice, err error) {
	var gi, ci int
	var attributes nvml.DeviceAttributes
	fetch(&err, &m.UUID, "nvmlDeviceGetUUID", "a MIG device of "+d.UUID, handle.GetUUID)
	fetch(&err, &gi, "nvmlDeviceGetGpuInstanceId", m.UUID, handle.GetGpuInstanceId)
	fetch(&err, &ci, "nvmlDeviceGetComputeInstanceId", m.UUID, handle.GetComputeInstanceId)
	fetch(&err, &attributes, "nvmlDeviceGetAttributes", m.UUID, handle.GetAttributes)
	if err != nil {
		return m, err
	}
	m.ID, m.instance = uint32(ci), uint32(gi)
	m.Slices = int(attributes.ComputeInstanceSliceCount)
	m.profile = d.guessProfile(attributes)
	m.Memory = readMemory(handle, m.UUID)
	m.Processes = h.processes(handle, m.UUID)
	return m, nil
}

// guessProfile returns the profile that matches what a MIG device reports about its
// instance: its slices and memory, and the optical flow engine, which only the media
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

// Placement is the position of a GPU instance: memory slices [Start, Start+Size).
type Placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

func (p Placement) String() string { return fmt.Sprintf("%d:%d", p.Start, p.Size) }

// Overlaps reports whether two placements share a memory slice.
func (p Placement) Overlaps(q Placement) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// Profile is a size of GPU instance that a GPU supports.
type Profile struct {
	// Name and ID are what nvidia-smi prints and accepts, such as "3g.40gb",
	// "1g.10gb+me", and the number for nvidia-smi mig -cgi.
	Name       string `json:"name"`
	ID         uint32 `json:"id"`
	Slices     int    `json:"compute_slices"`
	Memory     uint64 `json:"memory_bytes"`
	Processors int    `json:"multiprocessors"`
	// Max is how many instances an empty GPU holds. Room is how many more the driver
	// would create now, −1 if that is unknown.
	Max  int `json:"max"`
	Room int `json:"room"`
	// Placements are sorted by their start. They are empty if the user lacks the
	// privileges to list them.
	Placements []Placement `json:"placements"`

	// info is what later calls must pass back to NVML.
	info nvml.GpuInstanceProfileInfo
}

// suffixes maps NVML's number of a profile to the suffix of its name: with a media
// engine, with all or none of them, or with graphics.
var suffixes = map[int]string{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   "+me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   "+me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}

const (
	mebi = 1 << 20
	gibi = 1 << 30
)

// profileName returns the name that nvidia-smi prints. The memory in it is not that of
// the instance but its share of the GPU's memory, rounded up to eighths.
func profileName(slices int, memoryMiB, total uint64, suffix string) string {
	const shares = 8
	eighths := math.Ceil(float64(memoryMiB*mebi) * shares / float64(total))
	whole := float64((total + gibi - 1) / gibi)
	return fmt.Sprintf("%dg.%.0fgb%s", slices, math.Floor(whole*eighths/shares+0.5), suffix)
}

// profiles lists the profiles of a device, smallest first. why is the reason if the
// driver does not list the placements.
func profiles(handle nvml.Device, uuid string, total uint64) (all []Profile, why error, err error) {
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, code := handle.GetGpuInstanceProfileInfo(number)
		if code == nvml.ERROR_NOT_SUPPORTED || code == nvml.ERROR_INVALID_ARGUMENT {
			continue // this GPU or this driver does not have the profile
		}
		if err := check(code, "nvmlDeviceGetGpuInstanceProfileInfo", uuid); err != nil {
			return nil, nil, err
		}
		p := Profile{
			Name: profileName(int(info.SliceCount), info.MemorySizeMB, total, suffixes[number]),
			ID:   info.Id, Slices: int(info.SliceCount), Memory: info.MemorySizeMB * mebi,
			Processors: int(info.MultiprocessorCount), Max: int(info.InstanceCount), Room: -1,
			info: info,
		}
		// Placements and remaining capacity need privileges.
		places, code := handle.GetGpuInstancePossiblePlacements(&p.info)
		if err := check(code, "nvmlDeviceGetGpuInstancePossiblePlacements", uuid); err != nil {
			why = err
		} else if room, code := handle.GetGpuInstanceRemainingCapacity(&p.info); code == nvml.SUCCESS {
			p.Room = room
		}
		for _, place := range places {
			p.Placements = append(p.Placements, Placement{int(place.Start), int(place.Size)})
		}
		slices.SortFunc(p.Placements, func(a, b Placement) int { return a.Start - b.Start })
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b Profile) int {
		return cmp.Or(a.Slices-b.Slices, cmp.Compare(a.Memory, b.Memory))
	})
	return all, why, nil
}

// SetMIGMode turns the MIG mode of a GPU on or off. The driver may unbind and rebind the
// idle GPU. If that is not possible, the change remains pending and the error wraps
// ErrInUse or ErrReset.
func (h *Host) SetMIGMode(gpu string, on bool) error {
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	return h.with(gpu, func(handle nvml.Device) error {
		activation, code := handle.SetMigMode(mode)
		if err := check(code, "nvmlDeviceSetMigMode", gpu); err != nil {
			return err
		}
		return check(activation, "nvmlDeviceSetMigMode (activation)", gpu)
	})
}

// CreateGPUInstance creates an instance of a profile at a placement and returns its ID.
// Even after an error the instance may exist.
func (h *Host) CreateGPUInstance(gpu string, p Profile, at Placement) (id uint32, err error) {
	subject := fmt.Sprintf("%s at %s on %s", p.Name, at, gpu)
	err = h.with(gpu, func(handle nvml.Device) error {
		gi, code := handle.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: p.ID}, &nvml.GpuInstancePlacement{Start: uint32(at.Start), Size: uint32(at.Size)})
		if err := check(code, "nvmlDeviceCreateGpuInstanceWithPlacement", subject); err != nil {
			return err
		}
		info, code := gi.GetInfo()
		id = info.Id
		return check(code, "nvmlGpuInstanceGetInfo", subject)
	})
	return id, err
}

// CreateComputeInstance creates the compute instance that covers a whole GPU instance
// and returns its ID. Even after an error it may exist.
func (h *Host) CreateComputeInstance(gpu string, instance uint32) (id uint32, err error) {
	err = h.withInstance(gpu, instance, func(gi nvml.GpuInstance, subject string) error {
		info, err := wholeProfile(gi, subject)
		if err != nil {
			return err
		}
		ci, code := gi.CreateComputeInstance(&info)
		if err := check(code, "nvmlGpuInstanceCreateComputeInstance", subject); err != nil {
			return err
		}
		made, code := ci.GetInfo()
		id = made.Id
		return check(code, "nvmlComputeInstanceGetInfo", subject)
	})
	return id, err
}

// wholeProfile returns the compute instance profile with the most slices, which covers
// the whole GPU instance.
func wholeProfile(gi nvml.GpuInstance, subject string) (most nvml.ComputeInstanceProfileInfo, err error) {
	for number := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, code := gi.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if code == nvml.ERROR_NOT_SUPPORTED || code == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if err := check(code, "nvmlGpuInstanceGetComputeInstanceProfileInfo", subject); err != nil {
			return most, err
		}
		if info.SliceCount > most.SliceCount {
			most = info
		}
	}
	if most.SliceCount == 0 {
		return most, &fault{Call: "nvmlGpuInstanceGetComputeInstanceProfileInfo", Subject: subject, Code: nvml.ERROR_NOT_SUPPORTED}
	}
	return most, nil
}

// DestroyComputeInstance destroys a compute instance. No process may be using it.
func (h *Host) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	return h.withInstance(gpu, instance, func(gi nvml.GpuInstance, subject string) error {
		ci, code := gi.GetComputeInstanceById(int(compute))
		if err := check(code, "nvmlGpuInstanceGetComputeInstanceById", subject); err != nil {
			return err
		}
		return check(ci.Destroy(), "nvmlComputeInstanceDestroy", fmt.Sprintf("compute instance %d in %s", compute, subject))
	})
}

// DestroyGPUInstance destroys a GPU instance. It must not have compute instances.
func (h *Host) DestroyGPUInstance(gpu string, instance uint32) error {
	return h.withInstance(gpu, instance, func(gi nvml.GpuInstance, subject string) error {
		return check(gi.Destroy(), "nvmlGpuInstanceDestroy", subject)
	})
}

// withInstance calls work with the handle of a GPU instance, and its name for errors.
func (h *Host) withInstance(gpu string, id uint32, work func(gi nvml.GpuInstance, subject string) error) error {
	return h.with(gpu, func(handle nvml.Device) error {
		subject := fmt.Sprintf("GPU instance %d on %s", id, gpu)
		gi, code := handle.GetGpuInstanceById(int(id))
		if err := check(code, "nvmlDeviceGetGpuInstanceById", subject); err != nil {
			return err
		}
		return work(gi, subject)
	})
}
