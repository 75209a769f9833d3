package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/cuda/mig"
)

// maxCore is the highest number of a core, by the kernel's cpu_set_t.
const maxCore = 1023

// deviceKey is the key of the single device, and of the tables of several. planKey is the
// key of the plan.
const (
	deviceKey   = "device"
	planKey     = "plan"
	deviceForms = `must be either one device as a string, such as "cpu", or several as [[device]] tables`
)

// Static is the policy under which each service has a share of a device to itself.
const Static = "static"

// shareOf separates device and service in the name of a share. It is not allowed in the
// names of devices in a file, so a share cannot collide with one.
const shareOf = "/"

// maxShares limits the number of shares, because each has an executor.
const maxShares = 256

// Whole returns the name of the device itself if d is a share of it, and otherwise the name
// of d.
func (d *Device) Whole() string {
	name, _, _ := strings.Cut(d.Name, shareOf)
	return name
}

// Pool is the list of devices that one scheduler uses.
type Pool []Device

// Device is one device of the pool. It has those of Cores, GPU, MIG and Profile that fit its
// kind.
type Device struct {
	// Services, metrics, status and dashboard use this name: letters, digits, underscores and
	// hyphens.
	Name string `toml:"name" missing:"required"`
	// The device is of this kind; emulated devices are alone in a pool.
	Kind string `toml:"kind" oneof:"cpu,cuda,emulated" missing:"required"`
	// The workers of a CPU device run on these cores, such as "0-3,8"; without it on all.
	Cores string `toml:"cores"`
	// A cuda device is this GPU, in the forms of the key gpu above all tables.
	GPU string `toml:"gpu"`
	// The device is an instance of this MIG profile on its GPU, such as "3g.40gb".
	MIG string `toml:"mig"`
	// An emulated device takes its times from this file instead of device_profile.
	Profile string `toml:"profile" path:"file"`
}

// names returns the names of the devices.
func (p Pool) names() (names []string) {
	for _, d := range p {
		names = append(names, d.Name)
	}
	return names
}

// on returns the indices of the devices that a service runs on: those that it names,
// otherwise all.
func (p Pool) on(s *Service) (on []int) {
	for i := range p {
		if len(s.On) == 0 || slices.Contains(s.On, p[i].Name) {
			on = append(on, i)
		}
	}
	return on
}

// ServicesOn returns the names of the services on the i-th device.
func (p Pool) ServicesOn(i int, services []Service) (names []string) {
	for j := range services {
		if s := &services[j]; slices.Contains(p.on(s), i) {
			names = append(names, s.Name)
		}
	}
	return names
}

// GPUs returns the GPUs that the pool uses or may use, without duplicates. Each is an
// index, a UUID, or "" for the first GPU of the host.
func (p Pool) GPUs() (names []string) {
	for _, d := range p {
		if (d.Kind == DeviceAuto || d.Kind == DeviceCUDA) && !slices.Contains(names, d.GPU) {
			names = append(names, d.GPU)
		}
	}
	return names
}

// Instances returns the MIG instances of a GPU that are devices of the pool, in order, with
// their services.
func (p Pool) Instances(gpu string, services []Service) (wants []mig.Want) {
	for i, d := range p {
		if d.MIG != "" && d.GPU == gpu {
			wants = append(wants, mig.Want{Profile: d.MIG, Services: p.ServicesOn(i, services)})
		}
	}
	return wants
}

// CPUs returns the cores of a CPU device in ascending order, or nil if it uses all cores of
// the host.
func (d *Device) CPUs() []int {
	cores, _ := parseCores(d.Cores) // validated before
	return cores
}

// parseCores parses core numbers and ranges such as "0-3,8".
func parseCores(text string) (cores []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || from > to || to > maxCore {
			return nil, fmt.Errorf(`must be cores from 0 to %d such as "0-3" or "0,2", not %q`, maxCore, text)
		}
		for core := int(from); core <= int(to); core++ {
			cores = append(cores, core)
		}
	}
	slices.Sort(cores)
	if len(slices.Compact(slices.Clone(cores))) < len(cores) {
		return nil, fmt.Errorf("%q names a core twice", text)
	}
	return cores, nil
}

// Idle returns a sentence about each device that no service uses.
func (p Pool) Idle(services []Service) (all []string) {
	for i, d := range p {
		if len(p.ServicesOn(i, services)) == 0 {
			all = append(all, fmt.Sprintf("no service is on device %q: name it in on of a service, or leave the device out", d.Name))
		}
	}
	return all
}
