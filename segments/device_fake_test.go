package segments

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/ort"
)

// Words of the page of cuda/driver/testdata/fakecuda.c.
const (
	fakeMemoryLimit = 0
	fakeIdentity    = 1
	fakeDevices     = 2
	fakeVersion     = 3

	fakeBytes       = 16
	fakeAllocations = 17
	fakeStreams     = 18
	fakeEvents      = 19
	fakePins        = 20
	fakeContexts    = 21
	fakePending     = 22
	fakeCopiesIn    = 23
	fakeCopiesOut   = 24
	fakeSyncs       = 26
	fakeFaults      = 27
	fakeSticky      = 29
	fakeFailAfter   = 128
	fakeFailWith    = 192
	fakeWords       = 512

	fakeLimitBytes = 8 << 30
)

// Calls of the driver, as the fake numbers them.
const (
	callStreamSync  = 15
	callEventRecord = 18
	callEventSync   = 20
	callAlloc       = 22
	callInfo        = 24
	callCopyIn      = 25
	callCopyOut     = 26
	callPin         = 28
)

var (
	fakePage    []uint64
	fakeLibrary *driver.Library
)

// openFakeCUDA compiles and loads the CUDA driver that needs no GPU.
func openFakeCUDA(dir string) error {
	path := filepath.Join(dir, driver.LibraryName)
	source := filepath.Join("..", "cuda", "driver", "testdata", "fakecuda.c")
	if out, err := exec.Command("cc", "-O1", "-shared", "-fPIC", "-o", path, source).CombinedOutput(); err != nil {
		return fmt.Errorf("cc: %w: %s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "page"))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(fakeWords * 8); err != nil {
		return err
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, fakeWords*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	fakePage = unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), fakeWords)
	fakePage[fakeMemoryLimit], fakePage[fakeDevices], fakePage[fakeVersion], fakePage[fakeIdentity] = fakeLimitBytes, 1, 13000, 1
	if err := os.Setenv("FAKE_CUDA", file.Name()); err != nil {
		return err
	}
	fakeLibrary, err = driver.Open(path)
	return err
}

// fakeGPU is the CUDA device on a driver that needs no GPU, and whose memory
// the host's processor can use: ONNX Runtime computes there, at once, while
// copies and waits go through the driver, as late as they may. So what is
// copied too early, not waited for, or freed too soon gives wrong results.
type fakeGPU struct {
	*cudaDevice
	random *rand.Rand // gives ends of sessions to the host, nil for none
}

func (*fakeGPU) session(*ort.SessionOptions) {}
func (*fakeGPU) key() string                 { return "cpu " + cpuFeatures() }

func (d *fakeGPU) onHost(ort.MemoryInfo) bool {
	return d.random != nil && d.random.IntN(4) == 0
}

// openFakeGPU returns a device that is closed after the test, which must leave
// nothing behind.
func openFakeGPU(t testing.TB, env *ort.Env, spec CUDASpec) (*Device, *fakeGPU) {
	t.Helper()
	d, fake, err := newFakeGPU(env, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeFakeGPU(t, d) })
	return d, fake
}

func newFakeGPU(env *ort.Env, spec CUDASpec) (*Device, *fakeGPU, error) {
	d, err := openCUDA(fakeLibrary, env, spec)
	if err == nil {
		d.gpu, err = env.NewMemory(ort.CPUMemory, 0)
	}
	fake := &fakeGPU{cudaDevice: d}
	return &Device{fake}, fake, err
}

func closeFakeGPU(t failer, d *Device) {
	t.Helper()
	fakePage[fakeSticky] = 0
	expectEmptyGPU(t)
	if err := d.Close(); err != nil {
		t.Errorf("%v", err)
	}
	for _, word := range []int{fakeStreams, fakeEvents, fakeContexts} {
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
		"bytes": fakeBytes, "allocations": fakeAllocations, "pinned ranges": fakePins, "queued copies": fakePending, "faults": fakeFaults,
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
	fakePage[fakeFailAfter+call], fakePage[fakeFailWith+call] = n, uint64(r)
	t.Cleanup(func() { fakePage[fakeFailAfter+call] = 0 })
}
