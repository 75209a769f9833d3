// Package fakedriver is a CUDA driver without a GPU, for tests of whoever calls
// one: [Build] compiles libcuda.so.1 and a [Driver] has its page of words, which
// tell how it behaves and what happened. No program links it.
package fakedriver

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LibraryName is the file that Build makes, as the real driver's is called.
const LibraryName = "libcuda.so.1"

// pageVariable is where the library finds the file of its page, when it is loaded.
const pageVariable = "FAKE_CUDA"

//go:embed testdata/fakecuda.c
var source []byte

// Driver is one driver with its page.
type Driver struct {
	Path string   // of the library
	Page []uint64 // by the words of this package
}

// Build compiles the driver in a folder and sets the variable of this process by
// which the library finds its page. It has so many devices with so much memory
// each. The error has the compiler's words.
func Build(dir string, devices, bytes uint64) (*Driver, error) {
	d := &Driver{Path: filepath.Join(dir, LibraryName)}
	code := filepath.Join(dir, "fakecuda.c")
	if err := os.WriteFile(code, source, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-O1", "-shared", "-fPIC", "-o", d.Path, code).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cc: %w: %s", err, out)
	}
	file := filepath.Join(dir, "page")
	if err := d.share(file); err != nil {
		return nil, err
	}
	d.Page[MemoryLimit], d.Page[Devices] = bytes, devices
	return d, os.Setenv(pageVariable, file)
}

// share makes the file of the page and maps it.
func (d *Driver) share(path string) error {
	file, err := os.Create(path)
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
	d.Page = unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), words)
	return nil
}

// Calls returns how often a call was made.
func (d *Driver) Calls(call int) uint64 { return d.Page[called+call] }

// Fail makes the n-th such call from now give the result, 0 none.
func (d *Driver) Fail(call int, n, result uint64) {
	d.Page[failWith+call] = result
	d.Page[failAfter+call] = n
}

// Words of the page that is shared with testdata/fakecuda.c: first those that the
// test sets, then those that the driver counts.
const (
	MemoryLimit = 0 // bytes of device memory
	Identity    = 1 // 1: device addresses can be used by the host as well
	Devices     = 2 // how many there are
	MemoryTaken = 3 // bytes that others hold
	Unready     = 4 // so many questions for an event are answered with no
	Thread      = 5 // whose records of events are counted
	MPS         = 6 // 0: the driver does not know of it, 1: off, 2: on

	Bytes       = 16 // of device memory that are held
	Allocations = 17
	Streams     = 18 // that are open, as the next ones
	Events      = 19
	Pins        = 20
	Contexts    = 21
	Pending     = 22 // copies that are queued
	CopiesIn    = 23
	CopiesOut   = 24
	Syncs       = 26 // of streams and events
	Faults      = 27 // uses of what is not there, and calls without a context
	Sticky      = 29 // the result that every call gives from now on, 0 if none
	Flags       = 30 // of the context

	Records = 32 // of events by the thread that is counted

	called    = 64  // by call: how often it was called
	failAfter = 128 // by call: fail at the n-th call from now, 0 for never
	failWith  = 192 // by call: the result
	words     = 512
)

// Calls of the driver, as the fake numbers them.
const (
	CallInit          = 0
	CallCount         = 1
	CallUUID          = 4
	CallSetFlags      = 7
	CallRetain        = 8
	CallRelease       = 9
	CallStreamCreate  = 12
	CallStreamDestroy = 13
	CallStreamSync    = 14
	CallEventCreate   = 15
	CallEventDestroy  = 16
	CallEventRecord   = 17
	CallEventQuery    = 18
	CallEventSync     = 19
	CallAlloc         = 21
	CallFree          = 22
	CallInfo          = 23
	CallCopyIn        = 24
	CallCopyOut       = 25
	CallPin           = 27
	CallUnpin         = 28
)
