package fake

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// setMIG gives the device what concerns its mode and its profiles.
func (d *Device) setMIG() {
	d.GetMigModeFunc = func() (int, int, nvml.Return) {
		code := d.do("nvmlDeviceGetMigMode", d.capable)
		return d.MigMode, d.pending, code
	}
	d.SetMigModeFunc = func(mode int) (activation, code nvml.Return) {
		code = d.privileged("nvmlDeviceSetMigMode", func() nvml.Return {
			activation = d.setMode(mode)
			return nvml.SUCCESS
		})
		return activation, code
	}
	d.GetGpuInstanceProfileInfoFunc = func(number int) (info nvml.GpuInstanceProfileInfo, code nvml.Return) {
		code = d.do("nvmlDeviceGetGpuInstanceProfileInfo", func() nvml.Return {
			p := d.Model.byNumber(number)
			if p == nil || d.NoMIG {
				return nvml.ERROR_NOT_SUPPORTED
			}
			info = p.info()
			return nvml.SUCCESS
		})
		return info, code
	}
	d.GetGpuInstancePossiblePlacementsFunc = func(info *nvml.GpuInstanceProfileInfo) (all []nvml.GpuInstancePlacement, code nvml.Return) {
		code = d.withProfile("nvmlDeviceGetGpuInstancePossiblePlacements", info, false, func(p *Profile) nvml.Return {
			all = p.placements()
			return nvml.SUCCESS
		})
		return all, code
	}
	d.GetGpuInstanceRemainingCapacityFunc = func(info *nvml.GpuInstanceProfileInfo) (n int, code nvml.Return) {
		code = d.withProfile("nvmlDeviceGetGpuInstanceRemainingCapacity", info, true, func(p *Profile) nvml.Return {
			n = d.room(p)
			return nvml.SUCCESS
		})
		return n, code
	}
}

func (d *Device) capable() nvml.Return {
	if d.NoMIG {
		return nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.SUCCESS
}

// privileged is do for calls that need root.
func (d *Device) privileged(call string, work func() nvml.Return) nvml.Return {
	return d.do(call, func() nvml.Return {
		switch {
		case d.NoMIG:
			return nvml.ERROR_NOT_SUPPORTED
		case d.server.Unprivileged:
			return nvml.ERROR_NO_PERMISSION
		}
		return work()
	})
}

// withProfile is privileged for calls about a profile, by its ID.
func (d *Device) withProfile(call string, info *nvml.GpuInstanceProfileInfo, needsMode bool, work func(*Profile) nvml.Return) nvml.Return {
	return d.privileged(call, func() nvml.Return {
		p := d.Model.byID(info.Id)
		if p == nil || needsMode && d.MigMode != nvml.DEVICE_MIG_ENABLE {
			return nvml.ERROR_NOT_SUPPORTED
		}
		return work(p)
	})
}

// setMode changes the mode if the GPU is idle and empty, else it is pending.
func (d *Device) setMode(mode int) nvml.Return {
	d.pending = mode
	d.server.note("mode %d", mode)
	switch {
	case mode == d.MigMode:
		return nvml.SUCCESS
	case len(d.processes) > 0, len(d.instances) > 0:
		return nvml.ERROR_IN_USE
	case d.NeedsReset:
		return nvml.ERROR_RESET_REQUIRED
	}
	d.MigMode = mode
	return nvml.SUCCESS
}

// free reports whether a profile may be placed, by slices and by count.
func (d *Device) free(p *Profile, start uint32) bool {
	count := uint32(0)
	for _, gi := range d.instances {
		at := gi.Info.Placement
		if start < at.Start+at.Size && at.Start < start+p.Size {
			return false
		}
		if gi.profile == p {
			count++
		}
	}
	return count < p.Max
}

// room returns how many instances of a profile could be created, one after the
// other, first places first.
func (d *Device) room(p *Profile) (n int) {
	end, count := uint32(0), uint32(0)
	for _, gi := range d.instances {
		if gi.profile == p {
			count++
		}
	}
	for _, start := range p.Starts {
		if start >= end && count < p.Max && d.free(p, start) {
			n, count, end = n+1, count+1, start+p.Size
		}
	}
	return n
}

// setInstances gives the device what concerns its instances.
func (d *Device) setInstances() {
	d.CreateGpuInstanceWithPlacementFunc = func(info *nvml.GpuInstanceProfileInfo, at *nvml.GpuInstancePlacement) (gi nvml.GpuInstance, code nvml.Return) {
		code = d.withProfile("nvmlDeviceCreateGpuInstanceWithPlacement", info, true, func(p *Profile) nvml.Return {
			if !slices.Contains(p.Starts, at.Start) || at.Size != p.Size {
				return nvml.ERROR_INVALID_ARGUMENT
			}
			if !d.free(p, at.Start) {
				return nvml.ERROR_INSUFFICIENT_RESOURCES
			}
			gi = d.add(p, at.Start)
			return nvml.SUCCESS
		})
		return gi, code
	}
	d.CreateGpuInstanceFunc = nil // a place is always given
	d.GetGpuInstancesFunc = func(info *nvml.GpuInstanceProfileInfo) (all []nvml.GpuInstance, code nvml.Return) {
		code = d.withProfile("nvmlDeviceGetGpuInstances", info, true, func(p *Profile) nvml.Return {
			for _, gi := range d.instances {
				if gi.profile == p {
					all = append(all, gi)
				}
			}
			return nvml.SUCCESS
		})
		return all, code
	}
	d.GetGpuInstanceByIdFunc = func(id int) (gi nvml.GpuInstance, code nvml.Return) {
		code = d.privileged("nvmlDeviceGetGpuInstanceById", func() nvml.Return {
			for _, have := range d.instances {
				if have.Info.Id == uint32(id) {
					gi = have
					return nvml.SUCCESS
				}
			}
			return nvml.ERROR_NOT_FOUND
		})
		return gi, code
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) {
		return answer(d, "nvmlDeviceGetMaxMigDeviceCount", func() int { return 7 })
	}
	d.GetMigDeviceHandleByIndexFunc = func(index int) (m nvml.Device, code nvml.Return) {
		code = d.do("nvmlDeviceGetMigDeviceHandleByIndex", func() nvml.Return {
			all := d.migDevices()
			if index >= len(all) {
				return nvml.ERROR_NOT_FOUND
			}
			m = all[index]
			return nvml.SUCCESS
		})
		return m, code
	}
}
