package gpucheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/ort"
)

// Facts are what the machine has.
type Facts struct {
	Machine     string   `json:"machine"`
	Kernel      string   `json:"kernel"`
	Cores       int      `json:"cores"`
	MemoryBytes int64    `json:"memory_bytes"`
	User        int      `json:"user"` // number of the one who checks
	ORT         string   `json:"ort"`  // version of ONNX Runtime
	ORTPath     string   `json:"ort_path"`
	ORTPinned   bool     `json:"ort_pinned"`
	Libraries   []string `json:"libraries,omitempty"` // of CUDA, as far as folders that the loader was told of have them

	GPU      *cuda.Facts `json:"gpu,omitempty"`
	GPUFault string      `json:"gpu_fault,omitempty"` // why there are none of the GPU
}

// lookAround fills in the facts. What cannot be told is left out.
func (c *check) lookAround(context.Context) error {
	f := Facts{Machine: c.Machine, Cores: runtime.NumCPU(), User: os.Geteuid()}
	defer func() { c.keep(func(r *Report) { r.Facts = &f }) }()
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		f.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		f.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
	f.Libraries = librariesIn(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")))
	if err := f.addRuntime(); err != nil {
		return err
	}
	if c.Device != cutcost.CUDA {
		return nil
	}
	return c.addGPU(&f)
}

func (f *Facts) addRuntime() error {
	path, err := ort.Find()
	if err != nil {
		return err
	}
	lib, err := ort.Open(path)
	if err != nil {
		return err
	}
	f.ORT, f.ORTPath, f.ORTPinned = lib.Version(), lib.Path(), lib.Pinned()
	return nil
}

// openNVML opens the host's NVML, or a test's.
func (c *check) openNVML() (*cuda.Host, error) {
	if c.nvml != nil {
		return c.nvml()
	}
	return cuda.Open(cuda.Options{})
}

// addGPU reads what NVML says, and names the device after it.
func (c *check) addGPU(f *Facts) error {
	err := func() error {
		host, err := c.openNVML()
		if err != nil {
			return err
		}
		facts, err := host.Facts()
		if err != nil {
			return fmt.Errorf("%w; closing: %v", err, host.Close())
		}
		f.GPU = &facts
		return host.Close()
	}()
	if err != nil {
		f.GPUFault = err.Error()
		return fmt.Errorf("%w: %w", ErrDevice, err)
	}
	t, err := f.GPU.Find(c.GPU)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDevice, err)
	}
	name := t.Device.Name
	if t.Instance != nil {
		name += ", MIG " + t.Instance.Profile
	}
	c.keep(func(r *Report) { r.Device = name })
	if t.Instance != nil {
		return c.sampleMIG(t.UUID())
	}
	return nil
}

// sampleMIG looks at what a MIG device tells of itself.
func (c *check) sampleMIG(uuid string) (err error) {
	host, err := c.openNVML()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	s, err := host.Sample(uuid)
	c.expect("F2", err == nil && s.Memory.Known && s.Power.Known, "memory known: %t, power known: %t, %v", s.Memory.Known, s.Power.Known, err)
	c.expect("F5", err == nil && !s.Utilization.Known, "utilization known: %t, %v", s.Utilization.Known, s.Utilization.Err)
	return nil
}

// deviceName returns the UUID of the GPU or MIG device that is checked, or what it
// was called where NVML said nothing.
func (c *check) deviceName() string {
	if c.report.Facts != nil && c.report.Facts.GPU != nil {
		if t, err := c.report.Facts.GPU.Find(c.GPU); err == nil {
			return t.UUID()
		}
	}
	return c.GPU
}

// listed returns the processes that NVML has on the device now.
func (c *check) listed() (pids []int, err error) {
	host, err := c.openNVML()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	t, err := host.Find(c.deviceName())
	if err != nil {
		return nil, err
	}
	list := t.Device.Processes.Value
	if t.Instance != nil {
		list = t.Instance.Processes()
	}
	for _, p := range list {
		pids = append(pids, p.PID)
	}
	return pids, t.Device.Processes.Err
}

// cudaLibraries are the ones that ONNX Runtime's CUDA provider loads, at its start
// or when an operator needs them.
var cudaLibraries = []string{
	"libcudart.so", "libcublas.so", "libcublasLt.so", "libcurand.so", "libcudnn.so", "libcufft.so", "libnvrtc.so", "libcuda.so",
}

// librariesIn returns those of CUDA's libraries that the folders have, with where
// a link leads.
func librariesIn(folders []string) []string {
	var found []string
	for _, dir := range folders {
		for _, name := range cudaLibraries {
			paths, _ := filepath.Glob(filepath.Join(dir, name+".*")) // the pattern is well-formed unless the folder's name is odd
			for _, p := range paths {
				if real, err := filepath.EvalSymlinks(p); err == nil && !slices.Contains(found, real) && isELF(real) {
					found = append(found, real)
				}
			}
		}
	}
	return found
}

// isELF reports whether a file is a library and not a linker's script.
func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = f.Read(magic)
	return err == nil && bytes.Equal(magic, []byte("\x7fELF"))
}
