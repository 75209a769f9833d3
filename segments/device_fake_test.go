package segments

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
)

// fakeLimitBytes is the memory of the fake GPU, as of an H100.
const fakeLimitBytes = 80 << 30

var (
	fakeDriver  *fakedriver.Driver
	fakePage    []uint64 // of the driver
	fakeLibrary *driver.Library
)

// openFakeCUDA compiles and loads the CUDA driver that needs no GPU.
func openFakeCUDA(dir string) (err error) {
	if fakeDriver, err = fakedriver.Build(dir, 1, fakeLimitBytes); err != nil {
		return err
	}
	fakePage = fakeDriver.Page
	fakePage[fakedriver.Identity] = 1
	fakeLibrary, err = driver.Open(fakeDriver.Path)
	return err
}

// fakeGPU is the provider of a device on a driver that needs no GPU, and whose memory
// the host's processor can use: ONNX Runtime computes there, at once, while
// copies and waits go through the driver, as late as they may. So what is
// copied too early, not waited for, or freed too soon gives wrong results.
type fakeGPU struct {
	random *rand.Rand // gives ends of sessions to the host, nil for none
	half   []bool     // of each session that runs, whether its convolutions are of half precision
	onnx   bool       // the optimizer leaves convolutions as ONNX has them, as it does for CUDA
}

func (f *fakeGPU) Memory(env *ort.Env, _ ort.CUDAOptions) (*ort.Memory, error) {
	return env.NewMemory(ort.CPUMemory, 0)
}

func (f *fakeGPU) Session(o *ort.SessionOptions, _ ort.CUDAOptions, half bool) {
	if !o.Optimize {
		f.half = append(f.half, half)
	}
	if f.onnx && o.Optimize {
		o.Config = map[string]string{"optimization.disable_specified_optimizers": "ConvActivationFusion;ConvAddActivationFusion;NchwcTransformer"}
	}
}

func (f *fakeGPU) Key(string, ort.CUDAOptions) string {
	return fmt.Sprint("cpu ", cpuFeatures(), f.onnx)
}

func (f *fakeGPU) Homes(s *ort.Session) (inputs, outputs []bool, err error) {
	draw := func(n int) []bool {
		onHost := make([]bool, n)
		for i := range onHost {
			onHost[i] = f.random != nil && f.random.IntN(4) == 0
		}
		return onHost
	}
	return draw(len(s.Inputs())), draw(len(s.Outputs())), nil
}

// fakeSpec is a CUDASpec with the number of segments that are queued.
type fakeSpec struct {
	wire.CUDASpec
	Ahead int  // 0 for 4
	Loads bool // the device does not serve yet
}

// openFakeGPU returns a device that is closed after the test, which must leave
// nothing behind.
func openFakeGPU(t testing.TB, env *ort.Env, spec fakeSpec) (*gpu.Device, *fakeGPU) {
	t.Helper()
	d, fake, err := newFakeGPU(env, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeFakeGPU(t, d) })
	return d, fake
}

func newFakeGPU(env *ort.Env, spec fakeSpec) (*gpu.Device, *fakeGPU, error) {
	fake := &fakeGPU{}
	d, err := gpu.OpenWith(fakeLibrary, env, spec.CUDASpec, fake, cmp.Or(spec.Ahead, 4))
	if err == nil && !spec.Loads {
		d.Serve()
	}
	return d, fake, err
}

func closeFakeGPU(t failer, d *gpu.Device) {
	t.Helper()
	fakePage[fakedriver.Sticky] = 0
	if err := d.Close(); err != nil {
		t.Errorf("%v", err)
	}
	expectEmptyGPU(t)
	for _, word := range []int{fakedriver.Streams, fakedriver.Events, fakedriver.Contexts} {
		if fakePage[word] != 0 {
			t.Errorf("word %d of the fake driver is %d after the test", word, fakePage[word])
			fakePage[word] = 0
		}
	}
}

// expectEmptyGPU verifies that no memory is held and no copy is queued, and
// that nobody used what was not there.
func expectEmptyGPU(t failer) {
	t.Helper()
	for name, word := range map[string]int{
		"bytes": fakedriver.Bytes, "allocations": fakedriver.Allocations, "pinned ranges": fakedriver.Pins, "queued copies": fakedriver.Pending, "faults": fakedriver.Faults,
	} {
		if fakePage[word] != 0 {
			t.Errorf("%d %s are left on the GPU", fakePage[word], name)
			fakePage[word] = 0
		}
	}
}

// failCall makes the n-th such call from now give the result.
func failCall(t testing.TB, call int, n uint64, r driver.Result) {
	t.Helper()
	fakeDriver.Fail(call, n, uint64(r))
	t.Cleanup(func() { fakeDriver.Fail(call, 0, 0) })
}
