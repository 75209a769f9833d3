package segments

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/ort"
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

// fakeGPU is the CUDA device on a driver that needs no GPU, and whose memory
// the host's processor can use: ONNX Runtime computes there, at once, while
// copies and waits go through the driver, as late as they may. So what is
// copied too early, not waited for, or freed too soon gives wrong results.
type fakeGPU struct {
	*Device
	random *rand.Rand // gives ends of sessions to the host, nil for none
	half   []bool     // of each session that runs, whether its convolutions are of half precision
	onnx   bool       // the optimizer leaves convolutions as ONNX has them, as it does for CUDA
}

func (d *fakeGPU) Session(o *ort.SessionOptions, half bool) {
	if !o.Optimize {
		d.half = append(d.half, half)
	}
	if d.onnx && o.Optimize {
		o.Config = map[string]string{"optimization.disable_specified_optimizers": "ConvActivationFusion;ConvAddActivationFusion;NchwcTransformer"}
	}
}

func (d *fakeGPU) key() string { return fmt.Sprint("cpu ", cpuFeatures(), d.onnx) }

// fakeSpec is a CUDASpec with the number of segments that are queued.
type fakeSpec struct {
	wire.CUDASpec
	Ahead int // 0 for leastAhead
}

func (d *fakeGPU) homes(s *ort.Session) (inputs, outputs []bool, err error) {
	draw := func(n int) []bool {
		onHost := make([]bool, n)
		for i := range onHost {
			onHost[i] = d.random != nil && d.random.IntN(4) == 0
		}
		return onHost
	}
	return draw(len(s.Inputs())), draw(len(s.Outputs())), nil
}

// openFakeGPU returns a device that is closed after the test, which must leave
// nothing behind.
func openFakeGPU(t testing.TB, env *ort.Env, spec fakeSpec) (*Device, *fakeGPU) {
	t.Helper()
	d, fake, err := newFakeGPU(env, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeFakeGPU(t, d) })
	return d, fake
}

func newFakeGPU(env *ort.Env, spec fakeSpec) (*Device, *fakeGPU, error) {
	d, err := openCUDA(fakeLibrary, env, spec.CUDASpec, cmp.Or(spec.Ahead, leastAhead))
	if err != nil {
		return nil, nil, err
	}
	d.memory, err = env.NewMemory(ort.CPUMemory, 0)
	d.serving = true
	fake := &fakeGPU{Device: d}
	d.provider = fake
	return d, fake, err
}

func closeFakeGPU(t failer, d *Device) {
	t.Helper()
	fakePage[fakedriver.Sticky] = 0
	expectEmptyGPU(t)
	if err := d.Close(); err != nil {
		t.Errorf("%v", err)
	}
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
