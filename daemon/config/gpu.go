package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/cuda/mps"
)

// The devices of a configuration.
const (
	DeviceAuto = "auto"
	DeviceCPU  = "cpu"
	DeviceCUDA = "cuda"

	// DeviceEmulated is what stands wherever it is said what runs a model.
	DeviceEmulated = "emulated"
)

// Values of [mps] mode and [cuda] arena_extend.
const (
	MPSOwn      = "own"
	MPSExisting = "existing"
	MPSOff      = "off"

	extendDoubling  = "next_power_of_two"
	ExtendRequested = "same_as_requested"
)

// Limits of what concerns a GPU.
const (
	maxInstances  = 16
	minGPUMemory  = 1 << 20
	maxPercentage = 100
)

// MPS says how workers share a GPU.
type MPS struct {
	Mode    string // "own", "existing" or "off"
	Dir     string // "" for one of our choice, or where the existing one is
	Program string // nvidia-cuda-mps-control, "" looks in PATH
}

// MIG says how a GPU is divided. Without instances it is not.
type MIG struct {
	Owner     bool // the daemon creates what is missing, and destroys that again
	Instances []MIGInstance
}

// MIGInstance is one part of a GPU, with the services that run on it.
type MIGInstance struct {
	Profile  string
	Services []string
}

// CUDA is what every worker on a GPU gets.
type CUDA struct {
	TF32        bool   // float32 products may round their factors to 10 bits
	MemoryLimit int64  // of one worker, 0 for none
	ArenaExtend string // "next_power_of_two" or "same_as_requested"
}

// MPSLimits is what one service may take of a GPU that it shares.
type MPSLimits struct {
	Percentage   int    // of the multiprocessors, 0 for all
	PinnedMemory int64  // bytes of the GPU's memory, 0 for all
	Priority     string // "normal" or "below_normal"
}

func (m *MPS) keys(k keys) {
	k.text("mode", &m.Mode)
	k.text("dir", &m.Dir)
	k.text("program", &m.Program)
}

func (m *MIG) keys(k keys) {
	k.flag("owner", &m.Owner)
	k.tables("instance", len(m.Instances), func(n int) int {
		m.Instances = make([]MIGInstance, min(n, maxInstances+1))
		return len(m.Instances)
	}, func(i int, k keys) {
		k.text("profile", &m.Instances[i].Profile)
		k.texts("services", &m.Instances[i].Services)
	})
}

func (c *CUDA) keys(k keys) {
	k.flag("tf32", &c.TF32)
	k.bytes("memory_limit", &c.MemoryLimit)
	k.text("arena_extend", &c.ArenaExtend)
}

func (l *MPSLimits) keys(k keys) {
	k.number("active_thread_percentage", &l.Percentage)
	k.bytes("pinned_memory_limit", &l.PinnedMemory)
	k.text("client_priority", &l.Priority)
}

// mayGPU reports whether the services may come to run on a GPU.
func (c *Config) MayUseGPU() bool { return c.Device == DeviceAuto || c.Device == DeviceCUDA }

// checkGPU checks what concerns GPUs. On another device nothing of it may be
// said.
func (c *Config) checkGPU(k *checker) {
	if !c.MayUseGPU() {
		c.checkNoGPU(k)
		return
	}
	k.prefix = "mps."
	c.MPS.check(k)
	k.prefix = "cuda."
	k.choice("arena_extend", c.CUDA.ArenaExtend, []string{extendDoubling, ExtendRequested})
	k.gpuMemory("memory_limit", c.CUDA.MemoryLimit)
	k.prefix = "mig."
	c.checkMIG(k)
	for i := range c.Services {
		k.prefix = fmt.Sprintf("service[%d].", i)
		c.Services[i].MPS.check(k, c.MPS.Mode)
	}
	k.prefix = ""
}

// checkNoGPU finds what is said of a GPU that there is none of.
func (c *Config) checkNoGPU(k *checker) {
	only := func(said bool, key string) {
		if said {
			k.fault(key, `only a GPU has that: set device = "cuda", or leave it out with device = %q`, c.Device)
		}
	}
	standard := Default()
	only(c.GPU != "", "gpu")
	only(c.MPS.Mode != standard.MPS.Mode, "mps.mode")
	only(c.MPS.Dir != "", "mps.dir")
	only(c.MPS.Program != "", "mps.program")
	only(c.MIG.Owner, "mig.owner")
	only(len(c.MIG.Instances) > 0, "mig.instance")
	only(c.CUDA.TF32, "cuda.tf32")
	only(c.CUDA.MemoryLimit != 0, "cuda.memory_limit")
	only(c.CUDA.ArenaExtend != standard.CUDA.ArenaExtend, "cuda.arena_extend")
	for i := range c.Services {
		l := &c.Services[i].MPS
		only(l.Percentage != 0, fmt.Sprintf("service[%d].active_thread_percentage", i))
		only(l.PinnedMemory != 0, fmt.Sprintf("service[%d].pinned_memory_limit", i))
		only(l.priority() != mps.PriorityNormal.String(), fmt.Sprintf("service[%d].client_priority", i))
	}
}

// gpuMemory checks bytes of a GPU's memory; 0 stands for all of it.
func (k *checker) gpuMemory(key string, v int64) {
	if v != 0 {
		k.bytes(key, v, minGPUMemory, maxBytes)
	}
}

func (m *MPS) check(k *checker) {
	k.choice("mode", m.Mode, []string{MPSOwn, MPSExisting, MPSOff})
	if m.Dir != "" && !filepath.IsAbs(m.Dir) {
		k.fault("dir", "must be an absolute path, for workers stand elsewhere, not %q", m.Dir)
	}
	if m.Mode == MPSOff && (m.Dir != "" || m.Program != "") {
		k.fault("mode", `is "off", so nothing may be said of dir and program: leave them out, or set mode = "own"`)
	}
}

// priority returns the word for it, "" being the default's.
func (l *MPSLimits) priority() string {
	if l.Priority == "" {
		return mps.PriorityNormal.String()
	}
	return l.Priority
}

func (l *MPSLimits) check(k *checker, mode string) {
	k.number("active_thread_percentage", l.Percentage, 0, maxPercentage)
	k.gpuMemory("pinned_memory_limit", l.PinnedMemory)
	k.choice("client_priority", l.priority(), []string{mps.PriorityNormal.String(), mps.PriorityBelowNormal.String()})
	if mode != MPSOff {
		return
	}
	for key, said := range map[string]bool{
		"active_thread_percentage": l.Percentage != 0, "pinned_memory_limit": l.PinnedMemory != 0,
		"client_priority": l.priority() != mps.PriorityNormal.String(),
	} {
		if said {
			k.fault(key, `is a limit of MPS, which is off: set mode = "own" in [mps], or leave it out`)
		}
	}
}

func (c *Config) checkMIG(k *checker) {
	m := &c.MIG
	switch n := len(m.Instances); {
	case n == 0:
		if m.Owner {
			k.fault("owner", "owns nothing without a [[mig.instance]]: declare the instances, or set it to false")
		}
		return
	case n > maxInstances:
		k.fault("instance", "more than %d instances, which no GPU has", maxInstances)
		return
	case n > 1 && c.MPS.Mode == MPSExisting:
		k.fault("instance", `each instance needs an MPS control daemon of its own: set mode = "own" or "off" in [mps]`)
	}
	if c.Device != DeviceCUDA {
		k.fault("instance", `needs device = "cuda", not %q: there is no other device to divide`, c.Device)
	}
	if strings.HasPrefix(strings.ToUpper(c.GPU), "MIG-") {
		k.fault("instance", "gpu = %q is an instance already: name the GPU that is to be divided", c.GPU)
	}
	c.checkPlaces(k)
}

// checkPlaces checks that each service has one instance and each instance a
// service.
func (c *Config) checkPlaces(k *checker) {
	places := map[string]int{}
	for i, instance := range c.MIG.Instances {
		key := fmt.Sprintf("instance[%d].", i)
		if err := mig.CheckProfile(instance.Profile); err != nil {
			k.fault(key+"profile", "%v", err)
		}
		if len(instance.Services) == 0 {
			k.fault(key+"services", "no service runs on it: name one, or leave the instance out")
		}
		for _, name := range instance.Services {
			j, twice := places[name]
			switch {
			case !c.Has(name):
				k.fault(key+"services", "there is no service %q", name)
			case twice:
				k.fault(key+"services", "%q is on mig.instance[%d] already", name, j)
			}
			places[name] = i
		}
	}
	for _, s := range c.Services {
		if _, ok := places[s.Name]; !ok {
			k.fault("instance", "service %q is on none of the instances: add it to the services of one", s.Name)
		}
	}
}

func (c *Config) Has(service string) bool {
	return slices.ContainsFunc(c.Services, func(s Service) bool { return s.Name == service })
}
