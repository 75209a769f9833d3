package driver

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
)

var (
	fake    *fakedriver.Driver
	page    []uint64 // of the fake
	library *Library
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
func openFake(dir string) (err error) {
	if fake, err = fakedriver.Build(dir, 2, 1<<20); err != nil {
		return err
	}
	page = fake.Page
	library, err = Open(fake.Path)
	return err
}

// failNext makes the next such call give the result.
func failNext(t testing.TB, call int, r Result) {
	t.Helper()
	fake.Fail(call, 1, uint64(r))
	t.Cleanup(func() { fake.Fail(call, 0, 0) })
}

// openContext returns a context that is released after the test, which must
// leave nothing behind.
func openContext(t testing.TB) *Context {
	t.Helper()
	c, err := library.Retain("", false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		page[fakedriver.Sticky] = 0
		if err := c.Release(); err != nil {
			t.Error(err)
		}
		for _, word := range []int{
			fakedriver.Bytes, fakedriver.Allocations, fakedriver.Streams, fakedriver.Events, fakedriver.Pins, fakedriver.Contexts, fakedriver.Pending, fakedriver.Faults,
		} {
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
	s, err := c.NewStream()
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

func alloc(t testing.TB, c *Context, bytes int64) uint64 {
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
