package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mig"
)

// Ways of using MPS.
const (
	MPSOwn      = "own"
	MPSExisting = "existing"
	MPSOff      = "off"
)

// Wanted is what a configuration asks for.
type Wanted struct {
	CUDA     bool   // a GPU is a must
	GPU      string // which, "" for the first
	Services int
	MPS      string // MPSOwn, MPSExisting or MPSOff
	MPSDir   string // of MPSExisting, "" for where programs look by themselves
	MIGOwner bool
	MIG      []mig.Want
	Record   string // file of the instances that the daemon made, "" for none
}

// Runtime is the ONNX Runtime that was found.
type Runtime struct {
	Path      string
	Pinned    string   // the version that is to be installed
	Providers []string // that it was built with
}

// Options are what is looked for, and through what.
type Options struct {
	Wanted
	Runtime     Runtime
	LibraryPath []string                                    // folders of LD_LIBRARY_PATH
	MPSProgram  string                                      // "" looks in PATH
	OwnMPSDir   func(gpu string) string                     // where a control daemon of ours would live, by the UUID of what it serves; nil leaves it out
	Open        func() (*cuda.Host, error)                  // nil opens NVML
	Root        string                                      // of the file tree, "" for the host's
	Access      func(path string) error                     // may this user read and write it; nil asks the kernel
	Needs       func(path string) ([]string, error)         // libraries that a library is linked with; nil reads the file
	Try         func(ctx context.Context, gpu string) error // runs a small model on the GPU in another process; nil leaves it out
	User        int
}

// looking is one run of Look.
type looking struct {
	Options
	Report
	target *cuda.Target // that services would run on, nil if it is not known
}

// Look finds out what the host has. It does not hang longer than MPS and Try do.
func Look(ctx context.Context, o Options) Report {
	l := &looking{Options: o}
	l.look(ctx)
	if l.Facts != nil && l.Err() != nil && !l.CUDA {
		l.add("auto-cpu")
	}
	return l.Report
}

func (l *looking) look(ctx context.Context) {
	if l.Open == nil {
		l.Open = func() (*cuda.Host, error) { return cuda.Open(cuda.Options{}) }
	}
	if l.Access == nil {
		l.Access = func(path string) error {
			return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
		}
	}
	if l.Needs == nil {
		l.Needs = needs
	}
	if l.readFacts() && l.findTarget() {
		l.lookAtFiles()
		l.lookAtDevice()
		l.lookAtRuntime(ctx)
		l.lookAtMPS(ctx)
		l.lookAtMIG()
	}
}

// readFacts asks NVML, and says why it does not answer.
func (l *looking) readFacts() bool {
	host, err := l.Open()
	if err != nil {
		l.explain(err)
		return false
	}
	facts, err := host.Facts()
	if err = errors.Join(err, host.Close()); err != nil {
		l.add("driver-silent", "why", err.Error())
		return false
	}
	l.Facts = &facts
	if len(facts.Devices) == 0 {
		l.none("driver " + facts.Driver + " sees none")
		return false
	}
	l.add("driver", "driver", facts.Driver, "cuda", facts.CUDA.String())
	return true
}

// explain says why NVML could not be opened: most often there is no GPU at all.
func (l *looking) explain(err error) {
	gpus := l.onPCI()
	switch {
	case !errors.Is(err, cuda.ErrNoDriver):
		l.add("driver-silent", "why", err.Error())
	case len(gpus) > 0 && l.there("/sys/module/nouveau"):
		l.add("nouveau", "pci", strings.Join(gpus, ", "))
	case len(gpus) > 0 || l.there("/proc/driver/nvidia/version"):
		if len(gpus) == 0 {
			gpus = []string{"an address that is not shown here"}
		}
		l.add("no-driver", "pci", strings.Join(gpus, ", "), "why", err.Error())
	default:
		l.none("no such PCI device, and no driver")
	}
}

// none says that there is no GPU.
func (l *looking) none(why string) {
	if l.CUDA {
		l.add("gpu-wanted", "why", why)
		return
	}
	l.add("no-gpu", "why", why)
}

// onPCI returns the addresses of NVIDIA's GPUs: class 3 are display controllers.
func (l *looking) onPCI() (found []string) {
	vendors, _ := filepath.Glob(l.path("/sys/bus/pci/devices/*/vendor")) // the pattern is well-formed
	for _, path := range vendors {
		vendor, _ := os.ReadFile(path)
		class, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "class"))
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			found = append(found, filepath.Base(filepath.Dir(path)))
		}
	}
	return found
}

// findTarget looks up what the configuration names.
func (l *looking) findTarget() bool {
	name := l.GPU
	if name == "" {
		name = fmt.Sprint(l.Facts.Devices[0].Index)
	}
	t, err := l.Facts.Find(name)
	switch {
	case t.Device.Fault != nil:
		l.add("gpu-broken", "gpu", t.Device.String(), "why", t.Device.Fault.Error())
		return false
	case err != nil:
		l.add("gpu-unknown", "why", err.Error())
		return false
	}
	l.target = &t
	l.Device, l.UUID = t.Device.String(), t.UUID()
	memory := "memory unknown"
	if m := t.Device.Memory; m.Known {
		memory = fmt.Sprintf("%.1f GiB of memory, %.1f free", gibi(m.Value.Total), gibi(m.Value.Free))
	}
	l.add("gpu", "gpu", l.Device, "capability", t.Device.Capability.String(), "memory", memory)
	return true
}

func gibi(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// path returns where a path of the host is in the file tree.
func (l *looking) path(p string) string { return filepath.Join("/", l.Root, p) }

func (l *looking) there(p string) bool {
	_, err := os.Stat(l.path(p))
	return err == nil
}

// may reports whether the user may use a file of the host; the error is nil also
// for one that is not there.
func (l *looking) may(p string) (there bool, err error) {
	err = l.Access(l.path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, err
}

// words joins a list for a sentence.
func words(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(slices.Compact(list), ", ")
}
