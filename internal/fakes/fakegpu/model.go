package fakegpu

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Model is a kind of GPU. Major and Minor are its compute capability.
type Model struct {
	Name       string
	MemoryMiB  uint64
	Major      int
	Minor      int
	PowerWatts uint32
	Profiles   []profile
}

// profile is a row of the tables in NVIDIA's MIG user guide.
type profile struct {
	// Number is an NVML_GPU_INSTANCE_PROFILE_*; ID is what nvidia-smi mig -lgip prints.
	Number    int
	ID        uint32
	Slices    uint32
	Max       uint32
	MemoryMiB uint64
	Starts    []uint32

	// Size is in memory slices.
	Size uint32
	OFA  uint32

	// FirstID is the lowest ID that drivers give to its instances.
	FirstID uint32
}

// profiles returns the seven profiles of GPUs with seven compute and eight memory slices.
// A100, H100 and H200 differ only in the memory, in MiB, of an eighth, a quarter, a half
// and the whole of the GPU.
func profiles(eighth, quarter, half, whole uint64) []profile {
	each := []uint32{0, 1, 2, 3, 4, 5, 6}
	return []profile{
		{nvml.GPU_INSTANCE_PROFILE_1_SLICE, 19, 1, 7, eighth, each, 1, 0, 7},
		{nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 20, 1, 1, eighth, each, 1, 1, 7},
		{nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2, 15, 1, 4, quarter, []uint32{0, 2, 4, 6}, 2, 0, 3},
		{nvml.GPU_INSTANCE_PROFILE_2_SLICE, 14, 2, 3, quarter, []uint32{0, 2, 4}, 2, 0, 3},
		{nvml.GPU_INSTANCE_PROFILE_3_SLICE, 9, 3, 2, half, []uint32{0, 4}, 4, 0, 1},
		{nvml.GPU_INSTANCE_PROFILE_4_SLICE, 5, 4, 1, half, []uint32{0}, 4, 0, 1},
		{nvml.GPU_INSTANCE_PROFILE_7_SLICE, 0, 7, 1, whole, []uint32{0}, 8, 1, 0},
	}
}

var (
	A100      = Model{"NVIDIA A100-SXM4-40GB", 40960, 8, 0, 400, profiles(4864, 9856, 19968, 40192)}
	A100Large = Model{"NVIDIA A100-SXM4-80GB", 81920, 8, 0, 400, profiles(9728, 19968, 40192, 80896)}
	H100      = Model{"NVIDIA H100 80GB HBM3", 81559, 9, 0, 700, profiles(9984, 20096, 40448, 81152)}
	H200      = Model{"NVIDIA H200", 143771, 9, 0, 700, profiles(16384, 33280, 71168, 143104)}
)

// Models lists all of them.
var Models = []Model{A100, A100Large, H100, H200}

// find returns the first profile that fits, or nil.
func (m Model) find(fits func(profile) bool) *profile {
	if i := slices.IndexFunc(m.Profiles, fits); i >= 0 {
		return &m.Profiles[i]
	}
	return nil
}

// byID returns the profile with an ID, or nil.
func (m Model) byID(id uint32) *profile { return m.find(func(p profile) bool { return p.ID == id }) }

// info returns what NVML reports about the profile.
func (p *profile) info() nvml.GpuInstanceProfileInfo {
	return nvml.GpuInstanceProfileInfo{
		Id: p.ID, SliceCount: p.Slices, InstanceCount: p.Max, OfaCount: p.OFA, MemorySizeMB: p.MemoryMiB,
	}
}

// Slices returns the compute slices of the profile with an ID, 0 if there is none.
func (m Model) Slices(id uint32) uint32 {
	if p := m.byID(id); p != nil {
		return p.Slices
	}
	return 0
}
