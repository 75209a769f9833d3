package hostcheck

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda/mig"
	"github.com/overlapd/overlapd/internal/textfile"
)

// none reports whether there is no GPU at all, which is a fault only where one is wanted.
func (h *host) none(a *about) bool {
	switch {
	case h.silent != nil:
		a.add("why", "no such PCI device, and no driver")
	case len(h.Facts.Devices) == 0:
		a.add("why", "driver "+h.Facts.Driver+" sees none")
	default:
		return false
	}
	return true
}

// onPCI returns the addresses of NVIDIA's GPUs: class 3 are display controllers.
func (h *host) onPCI() (found []string) {
	vendors, _ := filepath.Glob(h.path("/sys/bus/pci/devices/*/vendor")) // the pattern is well-formed
	for _, path := range vendors {
		vendor, _ := os.ReadFile(path)
		class, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "class"))
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			found = append(found, filepath.Base(filepath.Dir(path)))
		}
	}
	return found
}

// findTarget finds the GPU, or MIG device, that services would run on.
func (h *host) findTarget() []about {
	t, err := h.Facts.Find(cmp.Or(h.GPU, fmt.Sprint(h.Facts.Devices[0].Index)))
	if t.Device.Fault != nil {
		return []about{of(t.Device.Fault, "gpu", t.Device.String())}
	}
	if err != nil {
		return []about{of(err)}
	}
	h.target = &t
	h.Device, h.UUID = t.Device.String(), t.UUID()
	memory := "memory unknown"
	if m := t.Device.Memory; m.Known {
		const gibi = 1 << 30
		memory = fmt.Sprintf("%.1f GiB of memory, %.1f free", float64(m.Value.Total)/gibi, float64(m.Value.Free)/gibi)
	}
	return []about{of(nil, "gpu", h.Device, "capability", t.Device.Capability.String(), "memory", memory)}
}

// deviceFiles are what CUDA opens, and the user must be able to.
func (h *host) deviceFiles() (list []about) {
	for _, path := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia" + h.minor()} {
		list = append(list, of(h.Access(h.path(path)), "path", path, "user", fmt.Sprint(h.User)))
	}
	return list
}

// capabilityFiles are what CUDA opens for a MIG device: one of the GPU instance, and one of the
// compute instance in it.
func (h *host) capabilityFiles() (list []about) {
	if h.target.Instance == nil {
		return nil
	}
	instance := fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%s/mig/gi%d", h.minor(), h.target.Instance.ID)
	for _, file := range []string{instance + "/access", fmt.Sprintf("%s/ci%d/access", instance, h.target.Compute.ID)} {
		if number := textfile.Field(h.path(file), "DeviceFileMinor"); number != "" { // drivers can be set up without them
			path := "/dev/nvidia-caps/nvidia-cap" + number
			err := unix.Faccessat(unix.AT_FDCWD, h.path(path), unix.R_OK, unix.AT_EACCESS)
			list = append(list, of(err, "path", path, "user", fmt.Sprint(h.User), "uuid", h.UUID, "access", file))
		}
	}
	return list
}

// minor returns the number of the GPU's device file, which is not always the index.
func (h *host) minor() string {
	address := strings.ToLower(strings.TrimPrefix(h.target.Device.PCI, "0000"))
	listed := textfile.Field(h.path("/proc/driver/nvidia/gpus/"+address+"/information"), "Device Minor")
	return cmp.Or(listed, fmt.Sprint(h.target.Device.Index))
}

// device is the whole GPU, which nvidia-smi changes by its index.
func (h *host) device() []about {
	d := h.target.Device
	return []about{of(nil, "gpu", fmt.Sprintf("GPU %d", d.Index), "index", fmt.Sprint(d.Index), "capability", d.Capability.String(),
		"mode", strings.ToUpper(d.ComputeMode.Value), "services", fmt.Sprint(h.Services))}
}

// computes reports whether the GPU's compute mode is one of these.
func (h *host) computes(modes ...string) bool {
	return slices.Contains(modes, h.target.Device.ComputeMode.Value)
}

// busy reports whether other processes use the GPU, or the part of it that is the target.
func (h *host) busy(a *about) bool {
	processes := h.target.Device.Processes.Value
	if h.target.Instance != nil {
		processes = h.target.Instance.Processes()
	}
	var pids []string
	for _, p := range processes[:min(len(processes), 8)] {
		pids = append(pids, fmt.Sprint(p.PID))
	}
	a.add("processes", "processes "+joined(pids))
	return len(processes) > 0
}

// divided reports whether the GPU is divided although the whole of it is named.
func (h *host) divided(a *about) bool {
	var names []string
	for _, i := range h.target.Device.Instances {
		for _, c := range i.Compute {
			names = append(names, c.UUID)
		}
	}
	a.add("instances", joined(names))
	return h.target.Device.MIG.Enabled && h.target.Instance == nil
}

// planMIG compares the instances that there are with those that the configuration declares, and
// draws what the daemon would make of them.
func (h *host) planMIG() []about {
	record, err := h.MIG.Record()
	var layout mig.Layout
	if err == nil {
		layout, err = mig.Plan(h.target.Device, h.MIG.Instances, mig.Options{Owner: h.MIG.Owner, Record: record, Boot: mig.Boot()})
	}
	a := of(err, "user", fmt.Sprint(h.User), "instances", fmt.Sprint(len(h.MIG.Instances)))
	if err == nil {
		h.Layout = layout.String()
		a.add("steps", fmt.Sprint(len(layout.Steps())))
	}
	return []about{a}
}
