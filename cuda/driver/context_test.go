package driver

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
)

func TestContext(t *testing.T) {
	c := openContext(t)
	if page[fakedriver.Flags] != scheduleBlock || c.Ordinal() != 0 {
		t.Errorf("flags %d on device %d", page[fakedriver.Flags], c.Ordinal())
	}
	free, total, err := c.MemInfo()
	if err != nil || free != 1<<20 || total != 1<<20 {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
	alloc(t, c, 1000)
	page[fakedriver.MemoryTaken] = 4096
	defer func() { page[fakedriver.MemoryTaken] = 0 }()
	if free, _, err = c.MemInfo(); err != nil || free != 1<<20-1024-4096 {
		t.Errorf("%d bytes free after taking some, %v", free, err)
	}
}

func TestContextErrors(t *testing.T) {
	for _, call := range []int{fakedriver.CallSetFlags, fakedriver.CallRetain} {
		failNext(t, call, MPSConnectionFailed)
		_, err := library.Retain("1", true)
		if !errors.Is(err, MPSConnectionFailed) || !strings.Contains(err.Error(), "Fake GPU 1") {
			t.Errorf("call %d: %v", call, err)
		}
	}
	c, err := library.Retain("1", true)
	if err != nil || page[fakedriver.Flags] != scheduleSpin {
		t.Fatalf("flags %d, %v", page[fakedriver.Flags], err)
	}
	failNext(t, fakedriver.CallInfo, 700)
	if _, _, err := c.MemInfo(); !errors.Is(err, Result(700)) {
		t.Errorf("MemInfo: %v", err)
	}
	if _, err := c.Alloc(1); !errors.Is(err, Result(700)) {
		t.Errorf("after a sticky error: %v", err)
	}
	page[fakedriver.Sticky] = 0
	if err := c.Release(); err != nil {
		t.Error(err)
	}
	if err := c.Release(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Release: %v", err)
	}
}

func TestContextLeaks(t *testing.T) {
	c := openContext(t)
	memory := hostMemory(t, 4096)
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.NewEvent(true)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Pin(memory); err != nil {
		t.Fatal(err)
	}
	err = c.Release()
	if !errors.Is(err, ErrLeak) {
		t.Fatalf("Release with all open: %v", err)
	}
	for _, kind := range []string{"1 blocks of memory", "1 streams", "1 events", "1 pinned ranges"} {
		if !strings.Contains(err.Error(), kind) {
			t.Errorf("%q does not tell of %s", err, kind)
		}
	}
	if err := errors.Join(s.Close(), e.Close(), c.Free(a), c.Unpin(memory)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Close(), e.Close()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

// TestThreads uses a context from threads that never made it current.
func TestThreads(t *testing.T) {
	c := openContext(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			a, err := c.Alloc(256)
			if err != nil {
				t.Error(err)
				return
			}
			if err := c.Free(a); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
	}
}

func TestPin(t *testing.T) {
	c := openContext(t)
	memory := hostMemory(t, 8192)
	if err := c.Pin(memory); err != nil {
		t.Fatal(err)
	}
	if err := c.Pin(memory[4096:]); !errors.Is(err, Result(712)) {
		t.Errorf("pinned twice: %v", err)
	}
	failNext(t, fakedriver.CallUnpin, 719)
	if err := c.Unpin(memory); !errors.Is(err, Result(719)) {
		t.Errorf("Unpin: %v", err)
	}
	page[fakedriver.Sticky] = 0
	if err := c.Unpin(memory); err != nil {
		t.Error(err)
	}
	if err := c.Unpin(memory); !errors.Is(err, Result(713)) {
		t.Errorf("unpinned twice: %v", err)
	}
	failNext(t, fakedriver.CallPin, OutOfMemory)
	if err := c.Pin(memory); !errors.Is(err, OutOfMemory) {
		t.Errorf("Pin: %v", err)
	}
}

func TestFreeErrors(t *testing.T) {
	c := openContext(t)
	a, err := c.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	failNext(t, fakedriver.CallFree, InvalidValue)
	if err := c.Free(a); !errors.Is(err, InvalidValue) {
		t.Errorf("Free: %v", err)
	}
	if err := c.Release(); !errors.Is(err, ErrLeak) {
		t.Errorf("what was not freed is forgotten: %v", err)
	}
	if err := c.Free(a); err != nil {
		t.Error(err)
	}
}
