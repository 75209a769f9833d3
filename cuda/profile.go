package cuda

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Placement is where a GPU instance lies: memory slices [Start, Start+Size).
type Placement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

func (p Placement) String() string { return fmt.Sprintf("%d:%d", p.Start, p.Size) }

// Overlaps reports whether two placements share a memory slice.
func (p Placement) Overlaps(q Placement) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// Profile is a size in which a GPU can be partitioned.
type Profile struct {
	Name       string      `json:"name"` // as nvidia-smi has it: "3g.40gb", "1g.10gb+me"
	ID         uint32      `json:"id"`   // of the driver, as nvidia-smi mig -cgi takes it
	Slices     int         `json:"compute_slices"`
	Memory     uint64      `json:"memory_bytes"`
	Processors int         `json:"multiprocessors"`
	Max        int         `json:"max"`        // instances on an empty GPU
	Room       int         `json:"room"`       // instances more that the driver would create now; −1 unknown
	Placements []Placement `json:"placements"` // by start; empty when the user may not ask

	info nvml.GpuInstanceProfileInfo // as NVML wants it back
}

// suffixes are the ends of profile names by NVML's number of the profile: with
// the media engines, without or with all of them, with graphics.
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

// profileName makes the name that nvidia-smi shows. The memory in it is not
// what the instance has but its share, in eighths, of the GPU's memory.
func profileName(slices int, memoryMiB, total uint64, suffix string) string {
	const shares = 8
	eighths := math.Ceil(float64(memoryMiB*mebi) * shares / float64(total))
	whole := float64((total + gibi - 1) / gibi)
	return fmt.Sprintf("%dg.%.0fgb%s", slices, math.Floor(whole*eighths/shares+0.5), suffix)
}

// profiles reads the profiles of a device, the smallest first. Why the driver
// does not tell placements is the second result.
func profiles(handle nvml.Device, uuid string, total uint64) (all []Profile, why error, err error) {
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, code := handle.GetGpuInstanceProfileInfo(number)
		if code == nvml.ERROR_NOT_SUPPORTED || code == nvml.ERROR_INVALID_ARGUMENT {
			continue // not a profile of this GPU, or not of this driver
		}
		if err := check(code, "nvmlDeviceGetGpuInstanceProfileInfo", uuid); err != nil {
			return nil, nil, err
		}
		p := newProfile(number, info, total)
		if err := p.readPlacements(handle, uuid); err != nil {
			why = err
		}
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b Profile) int {
		return cmp.Or(a.Slices-b.Slices, cmp.Compare(a.Memory, b.Memory))
	})
	return all, why, nil
}

func newProfile(number int, info nvml.GpuInstanceProfileInfo, total uint64) Profile {
	return Profile{
		Name: profileName(int(info.SliceCount), info.MemorySizeMB, total, suffixes[number]),
		ID:   info.Id, Slices: int(info.SliceCount), Memory: info.MemorySizeMB * mebi,
		Processors: int(info.MultiprocessorCount), Max: int(info.InstanceCount), Room: -1,
		info: info,
	}
}

// readPlacements asks where instances may lie and how many are free; both need
// privileges.
func (p *Profile) readPlacements(handle nvml.Device, uuid string) error {
	places, code := handle.GetGpuInstancePossiblePlacements(&p.info)
	if err := check(code, "nvmlDeviceGetGpuInstancePossiblePlacements", uuid); err != nil {
		return err
	}
	for _, place := range places {
		p.Placements = append(p.Placements, Placement{int(place.Start), int(place.Size)})
	}
	slices.SortFunc(p.Placements, func(a, b Placement) int { return a.Start - b.Start })
	if room, code := handle.GetGpuInstanceRemainingCapacity(&p.info); code == nvml.SUCCESS {
		p.Room = room
	}
	return nil
}
