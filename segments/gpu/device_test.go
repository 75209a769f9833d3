package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

var (
	fakeDriver  *fakedriver.Driver
	fakePage    []uint64 // of the driver
	fakeLibrary *driver.Library
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "gpu")
		if err == nil {
			defer os.RemoveAll(dir)
			fakeDriver, err = fakedriver.Build(dir, 1, 80<<30)
		}
		if err == nil {
			fakePage = fakeDriver.Page
			fakePage[fakedriver.Identity] = 1
			fakeLibrary, err = driver.Open(fakeDriver.Path)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// noRuntime is the CUDA provider without ONNX Runtime.
type noRuntime struct{ cuda }

func (noRuntime) Memory(*ort.Env, ort.CUDAOptions) (*ort.Memory, error) { return nil, nil }

// openFake opens a device on the driver that needs no GPU. It is closed after the test, which
// must leave nothing behind.
func openFake(t *testing.T, spec wire.CUDASpec) *Device {
	t.Helper()
	d, err := OpenWith(fakeLibrary, nil, spec, noRuntime{}, leastAhead)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeFake(t, d) })
	return d
}

func closeFake(t *testing.T, d *Device) {
	t.Helper()
	fakePage[fakedriver.Sticky] = 0
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	expectNothingLeft(t)
}

func expectNothingLeft(t *testing.T) {
	t.Helper()
	for name, word := range map[string]int{
		"bytes": fakedriver.Bytes, "allocations": fakedriver.Allocations, "pinned ranges": fakedriver.Pins, "queued copies": fakedriver.Pending,
		"faults": fakedriver.Faults, "streams": fakedriver.Streams, "events": fakedriver.Events, "contexts": fakedriver.Contexts,
	} {
		if fakePage[word] != 0 {
			t.Errorf("%d %s are left", fakePage[word], name)
			fakePage[word] = 0
		}
	}
}

// TestGather copies many small parts: they go to the device whole, in one copy for each call,
// also where the staging memory has to grow, and where it cannot be pinned.
func TestGather(t *testing.T) {
	for _, pinned := range []bool{true, false} {
		t.Run(fmt.Sprint("pinned ", pinned), func(t *testing.T) {
			d := openFake(t, wire.CUDASpec{})
			if !pinned {
				fakeDriver.Fail(fakedriver.CallPin, 1, uint64(driver.OutOfMemory))
			}
			const part, calls = leastStaging / 4, 9
			to, err := d.Alloc(calls * 3 * part)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, calls*3*part)
			for i := range want {
				want[i] = byte(i / 7)
			}
			copies, waits := fakePage[fakedriver.CopiesIn], fakePage[fakedriver.Syncs]
			for n := range calls {
				at := want[n*3*part:]
				parts := [][]byte{bytes.Clone(at[:part]), bytes.Clone(at[part : 2*part]), bytes.Clone(at[2*part : 3*part])}
				if err := d.CopyIn(to+uint64(n*3*part), parts...); err != nil {
					t.Fatal(err)
				}
				for _, p := range parts {
					clear(p) // it was gathered
				}
			}
			if n := fakePage[fakedriver.CopiesIn] - copies; n != calls {
				t.Errorf("%d copies of %d lists of parts", n, calls)
			}
			if n := fakePage[fakedriver.Syncs] - waits; n != calls-1 {
				t.Errorf("%d waits for staging memory that holds the parts of one call", n)
			}
			if pins := fakePage[fakedriver.Pins]; pins == 0 == pinned {
				t.Errorf("%d ranges are pinned, expected some: %t", pins, pinned)
			}
			got := make([]byte, len(want))
			if err := errors.Join(d.Begin(), d.CopyOut(got, to), d.End()); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(got, want) {
				t.Error("the device holds other bytes than were copied to it")
			}
			d.Release(to)
		})
	}
}

// TestSettleForgets drops copies that were to be made at the end of a span that failed.
func TestSettleForgets(t *testing.T) {
	d := openFake(t, wire.CUDASpec{})
	dst := []byte{1}
	d.CopyHost(dst, []byte{2})
	if err := errors.Join(d.Settle(), d.Begin(), d.End()); err != nil || dst[0] != 1 {
		t.Errorf("%v, %v", dst, err)
	}
	d.CopyHost(dst, []byte{2})
	if err := d.End(); err != nil || dst[0] != 2 {
		t.Errorf("%v, %v", dst, err)
	}
}

// TestQueueByTime launches segments that take so long, and looks at how many of them are
// queued when the next may be launched.
func TestQueueByTime(t *testing.T) {
	const us = time.Microsecond
	d := openFake(t, wire.CUDASpec{})
	for _, tt := range []struct {
		name   string
		takes  []time.Duration // in turns
		queued int
	}{
		{"not known", []time.Duration{0}, leastAhead - 1},
		{"long", []time.Duration{200 * us}, leastAhead - 1},
		{"300 µs in five", []time.Duration{60 * us}, 5},
		{"short", []time.Duration{5 * us}, 60},
		{"shorter than can be queued", []time.Duration{time.Nanosecond}, mostAhead - 1},
		{"long and short", []time.Duration{140 * us, 5 * us, 5 * us}, 6},
	} {
		for n := range 3 * mostAhead {
			if err := d.Launched(tt.takes[n%len(tt.takes)]); err != nil {
				t.Fatal(err)
			}
		}
		if n := d.ahead.launched - d.ahead.done; n != tt.queued {
			t.Errorf("%s: %d segments are queued, expected %d", tt.name, n, tt.queued)
		}
		if err := d.Sync(); err != nil || d.ahead.launched != d.ahead.done {
			t.Errorf("%s: %d of %d are done after a wait for all, %v", tt.name, d.ahead.done, d.ahead.launched, err)
		}
	}
}

// TestWaitsPoll counts how often a wait asks before it sleeps.
func TestWaitsPoll(t *testing.T) {
	d := openFake(t, wire.CUDASpec{})
	wait := func(unready uint64) (asked, slept uint64) {
		fakePage[fakedriver.Unready] = unready
		asked, slept = fakeDriver.Calls(fakedriver.CallEventQuery), fakeDriver.Calls(fakedriver.CallEventSync)
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		fakePage[fakedriver.Unready] = 0
		return fakeDriver.Calls(fakedriver.CallEventQuery) - asked, fakeDriver.Calls(fakedriver.CallEventSync) - slept
	}
	if d.poll != pollTime {
		t.Errorf("waits ask for %v", d.poll)
	}
	d.poll = time.Hour
	if asked, slept := wait(2); asked != 3 || slept != 0 {
		t.Errorf("it asked %d times and slept %d times for what was done at the third question", asked, slept)
	}
	d.poll = time.Microsecond
	if asked, slept := wait(1 << 60); asked == 0 || slept != 1 {
		t.Errorf("it asked %d times and slept %d times for what takes long", asked, slept)
	}
}

func TestResultOf(t *testing.T) {
	for message, want := range map[string]driver.Result{
		"CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=h": 700,
		"a kernel: CUDA failure 2: out of memory ; GPU=0":                                 driver.OutOfMemory,
		"Failed to allocate memory for requested buffer of size 123":                      driver.OutOfMemory,
		"Available memory of 1 is smaller than requested bytes of 2":                      driver.OutOfMemory,
		"CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0":                            driver.OutOfMemory,
		"CUDA failure without a number":                                                   0,
		"an invalid argument":                                                             0,
	} {
		if got, ok := resultOf(&ort.Error{Code: "fail", Message: message}); got != want || ok != (want != 0) {
			t.Errorf("%q is %v, %t; expected %v", message, got, ok, want)
		}
	}
	if _, ok := resultOf(errors.New("CUDA failure 700:")); ok {
		t.Error("an error of somebody else is taken for one of CUDA")
	}
}

// TestFaultIsAskedFor has ONNX Runtime fail for a reason that only the driver reports.
func TestFaultIsAskedFor(t *testing.T) {
	d := openFake(t, wire.CUDASpec{})
	said := &ort.Error{Code: "fail", Message: "something went wrong"}
	if err := d.Fault(said); err != error(said) {
		t.Errorf("with a device that works: %v", err)
	}
	fakePage[fakedriver.Sticky] = 719
	if err := d.Fault(said); !errors.Is(err, wire.ErrDeviceLost) || !errors.Is(err, said) {
		t.Errorf("with one that does not: %v", err)
	}
}

func TestOpenFails(t *testing.T) {
	for _, call := range []int{fakedriver.CallStreamCreate, fakedriver.CallEventCreate} {
		fakeDriver.Fail(call, 1, uint64(driver.OutOfMemory))
		if _, err := OpenWith(fakeLibrary, nil, wire.CUDASpec{}, noRuntime{}, leastAhead); !errors.Is(err, driver.OutOfMemory) {
			t.Errorf("call %d: %v", call, err)
		}
	}
	if _, err := OpenWith(fakeLibrary, nil, wire.CUDASpec{Device: "7"}, noRuntime{}, leastAhead); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("no such device: %v", err)
	}
	expectNothingLeft(t)
}

// TestStreamEndsFirst closes a device with work in its stream, as the callbacks are in which
// ONNX Runtime gives pinned memory back.
func TestStreamEndsFirst(t *testing.T) {
	d, err := OpenWith(fakeLibrary, nil, wire.CUDASpec{}, noRuntime{}, leastAhead)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := wire.MapPrivate(1, "of somebody else")
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Unmap(memory)
	memory[0] = 7
	got := []byte{0}
	address := uint64(reflect.ValueOf(memory).Pointer()) // which the driver takes for the device's
	if err := errors.Join(d.CopyOut(got, address), d.Close()); err != nil {
		t.Error(err)
	}
	if got[0] != 7 || fakePage[fakedriver.Pending] != 0 {
		t.Error("the device was closed before its stream came to its end")
	}
	expectNothingLeft(t)
}

// TestMPSByFact opens devices on drivers that use MPS, do not, and do not say.
func TestMPSByFact(t *testing.T) {
	on, off := true, false
	defer func() { fakePage[fakedriver.MPS] = 0 }()
	for _, tt := range []struct {
		fact uint64
		want *bool
		says string // "" for no error
	}{
		{0, &on, ""}, {0, &off, ""}, {1, nil, ""}, {2, nil, ""}, {1, &off, ""}, {2, &on, ""},
		{1, &on, "uses no MPS server"}, {2, &off, "uses an MPS server"},
	} {
		fakePage[fakedriver.MPS] = tt.fact
		d, err := OpenWith(fakeLibrary, nil, wire.CUDASpec{MPS: tt.want}, noRuntime{}, leastAhead)
		if err == nil {
			closeFake(t, d)
		}
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("driver says %d: %v, expected %q", tt.fact, err, tt.says)
		}
	}
	expectNothingLeft(t)
}

// TestSessionOptions checks the options that sessions receive. TF32 is for convolutions of
// half precision at least.
func TestSessionOptions(t *testing.T) {
	d := openFake(t, wire.CUDASpec{MemoryBytes: 1 << 30, TF32: true, ConvSearch: "DEFAULT"})
	o := ort.SessionOptions{Config: map[string]string{"x": "y"}}
	d.Session(&o, false)
	c := o.CUDA
	if c == nil || c.Stream != d.stream.Pointer() || !c.TF32 || c.LimitBytes != 1<<30 || !o.NoMemoryPattern ||
		c.ConvSearch != "DEFAULT" || o.Config["x"] != "y" || o.Config[keyDeviceInitializers] != "1" {
		t.Errorf("%+v", o)
	}
	key := d.Key()
	if !strings.Contains(key, "Fake GPU 0") || !strings.Contains(key, "9.0") || !strings.Contains(key, ort.CUDAProvider) {
		t.Errorf("key %q", key)
	}
	for _, half := range []bool{true, false} {
		var o ort.SessionOptions
		if (cuda{}).Session(&o, ort.CUDAOptions{}, half); o.CUDA.TF32 != half {
			t.Errorf("half precision %t: TF32 is %t", half, o.CUDA.TF32)
		}
	}
}

func TestPin(t *testing.T) {
	d := openFake(t, wire.CUDASpec{})
	memory, err := wire.MapPrivate(8192, "to pin")
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Unmap(memory)
	if err := d.Pin(memory); err != nil || fakePage[fakedriver.Pins] != 1 {
		t.Errorf("%d ranges are pinned: %v", fakePage[fakedriver.Pins], err)
	}
	if err := d.Pin(memory); err == nil || !strings.Contains(err.Error(), "slower") {
		t.Errorf("pinned twice: %v", err)
	}
	readOnly, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Unmap(readOnly)
	if err := d.Pin(readOnly); err == nil {
		t.Error("memory that can only be read was pinned")
	}
	if err := d.Pin(make([]byte, maxPinnedBytes+1)); err == nil {
		t.Error("too much was pinned")
	}
	if err := d.Pin(nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}
