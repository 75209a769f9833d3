package hostcheck

import (
	"fmt"
	"os"
	"strings"

	"github.com/overlapd/overlapd/cuda"
)

// lookAtFiles checks that the user may open what CUDA opens.
func (l *looking) lookAtFiles() {
	user := fmt.Sprint(l.User)
	for _, path := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia" + l.minor()} {
		there, err := l.may(path)
		switch {
		case !there:
			l.add("device-file-missing", "path", path)
		case err != nil:
			l.add("device-file-denied", "path", path, "user", user, "why", err.Error())
		}
	}
	if l.target.Instance == nil {
		return
	}
	for _, access := range []string{
		fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%s/mig/gi%d/access", l.minor(), l.target.Instance.ID),
		fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%s/mig/gi%d/ci%d/access", l.minor(), l.target.Instance.ID, l.target.Compute.ID),
	} {
		path, ok := l.capability(access)
		if !ok {
			continue // drivers that are told to use other ways do not have it
		}
		there, err := l.mayRead(path)
		switch {
		case !there:
			l.add("caps-missing", "path", path, "uuid", l.UUID, "access", access)
		case err != nil:
			l.add("caps-denied", "path", path, "uuid", l.UUID, "user", user, "why", err.Error())
		}
	}
}

// minor returns the number in the name of the GPU's device file, which is not
// always the index: the driver's own list says.
func (l *looking) minor() string {
	address := strings.ToLower(strings.TrimPrefix(l.target.Device.PCI, "0000"))
	info, _ := os.ReadFile(l.path("/proc/driver/nvidia/gpus/" + address + "/information")) // without it, the index
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "Device Minor" {
			return strings.TrimSpace(value)
		}
	}
	return fmt.Sprint(l.target.Device.Index)
}

// capability returns the device file that a capability of the driver stands for.
func (l *looking) capability(access string) (string, bool) {
	text, err := os.ReadFile(l.path(access))
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, "DeviceFileMinor:"); ok {
			return "/dev/nvidia-caps/nvidia-cap" + strings.TrimSpace(number), true
		}
	}
	return "", false
}

// mayRead is may for files that are only read.
func (l *looking) mayRead(p string) (there bool, err error) {
	f, err := os.Open(l.path(p))
	switch {
	case os.IsNotExist(err):
		return false, nil
	case err != nil:
		return true, err
	}
	return true, f.Close()
}

// lookAtDevice tells of modes that hinder, and of what else uses the GPU.
func (l *looking) lookAtDevice() {
	d := l.target.Device
	gpu, index := fmt.Sprintf("GPU %d", d.Index), fmt.Sprint(d.Index)
	l.lookAtMode(d.ComputeMode.Value, gpu, index, d.MIG.Enabled)
	if d.Persistence.Known && !d.Persistence.Value {
		l.add("persistence", "gpu", gpu, "index", index)
	}
	if ecc := d.ECC; ecc.Known {
		if !ecc.Value.Enabled {
			l.add("ecc-off", "gpu", gpu, "index", index)
		}
		if n := ecc.Value.Uncorrected; n.Known && n.Value > 0 {
			l.add("ecc-errors", "gpu", gpu, "index", index, "errors", fmt.Sprint(n.Value))
		}
	}
	processes := d.Processes.Value
	if l.target.Instance != nil {
		processes = l.target.Instance.Processes()
	}
	if len(processes) > 0 {
		var pids []string
		for _, p := range processes[:min(len(processes), 8)] {
			pids = append(pids, fmt.Sprint(p.PID))
		}
		l.add("busy", "gpu", gpu, "processes", "processes "+words(pids))
	}
}

// lookAtMode tells of compute modes that hinder. A GPU that is divided has to be in
// the default one: an MPS server for each instance is more than one process.
func (l *looking) lookAtMode(mode cuda.ComputeMode, gpu, index string, divided bool) {
	switch mode {
	case cuda.Prohibited:
		l.add("compute-prohibited", "gpu", gpu, "index", index)
	case cuda.ExclusiveProcess, cuda.ExclusiveThread:
		if l.MPS == MPSOff && l.Services > 1 {
			l.add("compute-exclusive", "gpu", gpu, "index", index, "mode", strings.ToUpper(string(mode)), "services", fmt.Sprint(l.Services))
		}
	case cuda.DefaultMode:
		if l.MPS != MPSOff && !divided {
			l.add("compute-default", "gpu", gpu, "index", index)
		}
	}
}
