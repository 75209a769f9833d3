package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// Words of the page that is shared with testdata/fakecuda.c.
const (
	memoryLimit = 0
	identity    = 1
	deviceCount = 2
	version     = 3
	memoryTaken = 4

	bytesUsed   = 16
	allocations = 17
	streamsOpen = 18
	eventsOpen  = 19
	pinsOpen    = 20
	contexts    = 21
	pending     = 22
	syncs       = 26
	faults      = 27
	sticky      = 29
	flags       = 30
	priority    = 31
	failAfter   = 128
	failWith    = 192
	words       = 512
)

// Calls of the driver, as the fake numbers them.
const (
	callInit, callSetFlags, callRetain, callRelease      = 0, 8, 9, 10
	callPriorities, callStreamCreate, callStreamDestroy  = 12, 13, 14
	callStreamSync, callEventCreate, callEventDestroy    = 15, 16, 17
	callAlloc, callFree, callInfo, callCopyIn, callUnpin = 22, 23, 24, 25, 29
	callCount, callUUID, callCopyOut, callCopy, callPin  = 2, 5, 26, 27, 28
	callEventSync, callEventRecord                       = 20, 18
)

var (
	page     []uint64
	fakePath string
	library  *Library
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fakecuda")
	if err == nil {
		err = openFake(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// openFake compiles the driver that needs no GPU, and loads it.
func openFake(dir string) error {
	fakePath = filepath.Join(dir, LibraryName)
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", fakePath, "testdata/fakecuda.c").CombinedOutput(); err != nil {
		return fmt.Errorf("cc: %w: %s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "page"))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(words * 8); err != nil {
		return err
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, words*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	page = unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), words)
	page[memoryLimit], page[deviceCount], page[version] = 1<<20, 2, 13000
	if err := os.Setenv("FAKE_CUDA", file.Name()); err != nil {
		return err
	}
	library, err = Open(fakePath)
	return err
}

// failNext makes the next such call give the result.
func failNext(t testing.TB, call int, r Result) {
	t.Helper()
	page[failAfter+call], page[failWith+call] = 1, uint64(r)
	t.Cleanup(func() { page[failAfter+call] = 0 })
}

// openContext returns a context that is released after the test, which must
// leave nothing behind.
func openContext(t testing.TB) *Context {
	t.Helper()
	d, err := library.Find("")
	if err != nil {
		t.Fatal(err)
	}
	c, err := library.Retain(d, ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		page[sticky] = 0
		if err := c.Release(); err != nil {
			t.Error(err)
		}
		for _, word := range []int{bytesUsed, allocations, streamsOpen, eventsOpen, pinsOpen, contexts, pending, faults} {
			if page[word] != 0 {
				t.Errorf("word %d of the fake is %d after the test", word, page[word])
				page[word] = 0
			}
		}
	})
	return c
}

type closer interface{ Close() error }

func closeAfter(t testing.TB, c closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func openStream(t testing.TB, c *Context) *Stream {
	t.Helper()
	s, err := c.NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	return s
}

func openEvent(t testing.TB, c *Context) *Event {
	t.Helper()
	e, err := c.NewEvent(false)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, e)
	return e
}

func alloc(t testing.TB, c *Context, bytes int64) Address {
	t.Helper()
	a, err := c.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Free(a); err != nil {
			t.Error(err)
		}
	})
	return a
}

// hostMemory returns memory that the garbage collector does not know.
func hostMemory(t testing.TB, bytes int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m
}
