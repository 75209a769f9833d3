// Package fakedriver is a CUDA driver without a GPU, for tests of code that calls one.
// [Build] compiles a libcuda.so.1. A [Driver] has a page of words, shared with the
// library, that control its behaviour and count what happened. No program links it.
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

// LibraryName is the name of the file that Build creates, the same as the real driver's.
const LibraryName = "libcuda.so.1"

// pageVariable tells the library where the file of its page is when it is loaded.
const pageVariable = "FAKE_CUDA"

//go:embed testdata/fakecuda.c
var source []byte

// Driver is one compiled driver with its page.
type Driver struct {
	// Path is the file of the library.
	Path string

	// Page is indexed by the words of this package.
	Page []uint64
}

// Build compiles the driver in the folder dir, with the given number of devices and the
// memory of each. It sets the environment variable through which the library finds its
// page. If the compiler fails, the error has its output.
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

// share creates the file of the page and maps it.
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

// Calls returns how often a function of the driver was called.
func (d *Driver) Calls(call int) uint64 { return d.Page[called+call] }

// Fail makes the n-th such call from now return the result. With n = 0 no call fails.
func (d *Driver) Fail(call int, n, result uint64) {
	d.Page[failWith+call] = result
	d.Page[failAfter+call] = n
}

// Words of the page that is shared with testdata/fakecuda.c. The words below 16, and
// those from failAfter on, are set by the test. The others are set by the driver, except
// that a test may set or clear Sticky as well.
const (
	// MemoryLimit is the device memory in bytes, and MemoryTaken how much of it other
	// processes hold.
	MemoryLimit = 0

	// Identity makes device addresses usable by the host if it is 1.
	Identity = 1

	// Devices is the number of devices.
	Devices     = 2
	MemoryTaken = 3

	// Unready is how many queries of an event answer that it has not passed yet.
	Unready = 4

	// Thread is the thread whose records of events are counted in Records.
	Thread = 5

	// MPS is 0 if the driver does not know of MPS, 1 for off, 2 for on.
	MPS = 6

	// Bytes is the device memory that is allocated. The following words count objects
	// that are open.
	Bytes       = 16
	Allocations = 17
	Streams     = 18
	Events      = 19
	Pins        = 20
	Contexts    = 21

	// Pending counts copies that are queued.
	Pending   = 22
	CopiesIn  = 23
	CopiesOut = 24

	// Syncs counts synchronizations of streams and events.
	Syncs = 26

	// Faults counts uses of objects that do not exist, and calls without a context.
	Faults = 27

	// Sticky is the result that every call returns from now on, 0 for none.
	Sticky = 29

	// Flags are those of the context.
	Flags   = 30
	Records = 32

	// These are the beginnings of arrays, indexed by call: how often it was called,
	// after how many further calls it fails, and with what result.
	called    = 64
	failAfter = 128
	failWith  = 192

	// words is the size of the page.
	words = 512
)

// Calls of the driver, as testdata/fakecuda.c numbers them.
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
