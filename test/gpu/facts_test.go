package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/ort"
)

// facts are what the machine has.
type facts struct {
	Kernel    string `json:"kernel"`
	Cores     int    `json:"cores"`
	User      int    `json:"user"` // number of the one who checks
	ORT       string `json:"ort"`  // version of ONNX Runtime
	ORTPath   string `json:"ort_path"`
	ORTPinned bool   `json:"ort_pinned"`
	MPS       string `json:"mps,omitempty"` // what its control program prints of its version
	GPU       any    `json:"gpu,omitempty"` // cuda.Facts
}

func (c *check) readFacts(ctx context.Context) error {
	f := facts{Cores: runtime.NumCPU(), User: os.Geteuid()}
	defer func() { keep(c, &c.mu.Facts, f) }()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	f.Kernel = unix.ByteSliceToString(name.Release[:])
	path, err := ort.Find()
	if err != nil {
		return err
	}
	lib, err := ort.Open(path)
	if err != nil {
		return err
	}
	f.ORT, f.ORTPath, f.ORTPinned = lib.Version(), lib.Path(), lib.Pinned()
	if c.rehearsal() {
		return nil
	}
	version, verr := exec.CommandContext(ctx, cmp.Or(c.mpsProgram, "nvidia-cuda-mps-control"), "-v").CombinedOutput()
	if f.MPS = strings.TrimSpace(string(version)); verr != nil {
		f.MPS += " " + verr.Error()
	}
	found, err := c.findGPU()
	if found != nil {
		f.GPU = found
	}
	if err != nil {
		return err
	}
	// NVML stays open: without persistence mode the driver starts anew for each process else.
	if host, err := c.nvml(); err == nil {
		c.top.Cleanup(func() { _ = host.Close() })
	}
	t, err := found.Find(c.gpu)
	if err != nil {
		return err
	}
	return suits(filepath.Join(filepath.Dir(path), "architectures"), &t.Device)
}

// suits returns an error if the libraries are for GPUs of other architectures, as the
// file that the thin bundle has beside them says.
func suits(file string, d *cuda.Device) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	arch := strings.ReplaceAll(fmt.Sprint(d.Capability), ".", "")
	if err == nil && !slices.Contains(strings.Fields(string(text)), arch) {
		err = fmt.Errorf("the archive has kernels for architecture %s only, %s is %s: take the pieces in full, or make the archive with GPU_ARCH=%s",
			strings.TrimSpace(string(text)), d.Name, arch, arch)
	}
	return err
}

// TestSuits: the thin archive is refused on a GPU that it has no kernels for.
func TestSuits(t *testing.T) {
	c, gpus := withFakes(t)
	c.gpu = gpus.Devices[1].UUID
	f, err := c.findGPU()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "architectures")
	if err := suits(file, &f.Devices[0]); err != nil {
		t.Errorf("of the whole provider: %v", err)
	}
	if err := os.WriteFile(file, []byte("90\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := suits(file, &f.Devices[1]); err != nil {
		t.Error(err)
	}
	if err := suits(file, &f.Devices[0]); err == nil || !strings.Contains(err.Error(), "GPU_ARCH=80") {
		t.Errorf("on an A100: %v", err)
	}
}

// findGPU reads what NVML says, and names the device after it.
func (c *check) findGPU() (f *cuda.Facts, err error) {
	host, err := c.nvml()
	if err != nil {
		c.expect([]string{"F1"}, false, "%v", err)
		return nil, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	found, err := host.Facts()
	c.expect([]string{"F1"}, err == nil, "facts were read with driver %s, NVML %s: %v", found.Driver, found.NVML, err)
	if err != nil {
		return nil, err
	}
	t, err := found.Find(c.gpu)
	if err != nil {
		return &found, err
	}
	name := t.Device.Name
	if t.Instance != nil {
		name += ", MIG " + t.Instance.Profile
	}
	if old := c.mu.Device; old != "" && old != c.device && old != name {
		return &found, fmt.Errorf("the results that are there are of %s, and this is %s: name another folder in GPU_CHECK_OUT", old, name)
	}
	c.gpu, c.mu.Device = t.UUID(), name
	return &found, nil
}

// listed returns the processes that NVML has on the device now.
func (c *check) listed() (pids []int, err error) {
	host, err := c.nvml()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	facts, err := host.Facts()
	if err != nil {
		return nil, err
	}
	t, err := facts.Find(c.gpu)
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

// TestFactsOfFake: a GPU, or a MIG device of one, is found and named by its UUID.
func TestFactsOfFake(t *testing.T) {
	c, gpus := withFakes(t)
	if err := gpus.Place(1, 9, 0, 3); err != nil {
		t.Fatal(err)
	}
	f, err := c.findGPU()
	if err != nil || c.gpu != gpus.Devices[1].UUID || c.mu.Device != f.Devices[1].Name {
		t.Errorf("found %s, %s: %v", c.gpu, c.mu.Device, err)
	}
	c.gpu = f.Devices[1].Instances[0].UUID
	if _, err := c.findGPU(); err == nil || !strings.Contains(err.Error(), "are of "+f.Devices[1].Name) {
		t.Errorf("with the results of another device: %v", err)
	}
	c.mu.Device = c.device // as in a fresh report
	if _, err := c.findGPU(); err != nil || !strings.HasSuffix(c.mu.Device, ", MIG 3g.40gb") {
		t.Errorf("found %s: %v", c.mu.Device, err)
	}
	c.gpu = "7"
	if _, err := c.findGPU(); err == nil || !strings.Contains(err.Error(), "this host has") {
		t.Errorf("got %v", err)
	}
	if !gpus.Closed() {
		t.Error("NVML is left open")
	}
}
