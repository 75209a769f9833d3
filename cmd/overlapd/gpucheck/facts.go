package gpucheck

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

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
	ORT         string   `json:"ort"` // version of ONNX Runtime
	ORTPath     string   `json:"ort_path"`
	ORTPinned   bool     `json:"ort_pinned"`
	Libraries   []string `json:"libraries,omitempty"` // of CUDA, as far as folders that the loader was told of have them

	GPU      *cuda.Facts `json:"gpu,omitempty"`
	GPUFault string      `json:"gpu_fault,omitempty"` // why there are none of the GPU
}

// lookAround fills in the facts. What cannot be told is left out.
func (c *check) lookAround(context.Context) error {
	f := &Facts{Machine: c.Machine, Cores: runtime.NumCPU()}
	c.report.Facts = f
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
	return c.addGPU(f)
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

// addGPU reads what NVML says, and names the device after it.
func (c *check) addGPU(f *Facts) error {
	err := func() error {
		host, err := cuda.Open(cuda.Options{})
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
	if d := c.chosen(); d != nil {
		c.report.Device = d.Name
	}
	return nil
}

// chosen returns the device that is checked, as far as it is known.
func (c *check) chosen() *cuda.Device {
	if c.report.Facts == nil || c.report.Facts.GPU == nil {
		return nil
	}
	for i := range c.report.Facts.GPU.Devices {
		d := &c.report.Facts.GPU.Devices[i]
		if c.GPU == fmt.Sprint(d.Index) || c.GPU == d.UUID || strings.EqualFold(c.GPU, d.PCI) {
			return d
		}
	}
	return nil
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
