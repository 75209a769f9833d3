package driver

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "library.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"unsafe"
)

var (
	// ErrNoLibrary is returned if libcuda.so.1 is missing or cannot be loaded.
	ErrNoLibrary = errors.New("the CUDA driver library cannot be loaded")

	// ErrTooOld is returned if the library lacks a function that overlapd calls.
	ErrTooOld = errors.New("the CUDA driver is too old")

	// ErrNotFound is returned if no visible GPU or MIG instance has the given name.
	ErrNotFound = errors.New("no such GPU is visible to this process")

	// ErrClosed is returned if an object is used after it was closed.
	ErrClosed = errors.New("driver: already closed")

	// ErrLeak is returned if a Context is released while objects made from it are
	// still open.
	ErrLeak = errors.New("driver: not everything was closed")
)

// LibraryName is the name under which the system's loader finds the driver.
const LibraryName = "libcuda.so.1"

const remedy = "it comes with the NVIDIA driver: install the package libcuda1 (Debian), libnvidia-compute-NNN (Ubuntu) or " +
	"nvidia-driver-cuda-libs (Fedora, RHEL); in a container, start it with the NVIDIA container toolkit"

// Library is the loaded driver. It stays loaded until the process ends. Its methods are
// safe for concurrent use.
type Library struct {
	path string

	// table is in C memory that is never freed.
	table *C.struct_cuda
}

// Open loads and initializes the driver from the file path. With "" the system's loader
// searches for LibraryName.
func Open(path string) (*Library, error) {
	l := &Library{path: cmp.Or(path, LibraryName), table: (*C.struct_cuda)(C.calloc(1, C.sizeof_struct_cuda))}
	if l.table == nil {
		return nil, fmt.Errorf("driver: out of host memory")
	}
	name := C.CString(l.path)
	defer C.free(unsafe.Pointer(name))
	// dlerror returns the failure of the current thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var missing *C.char
	reason := C.overlapd_cuda_load(l.table, name, &missing)
	switch {
	case reason != nil:
		return nil, fmt.Errorf("%w: %s; %s", ErrNoLibrary, C.GoString(reason), remedy)
	case missing != nil:
		return nil, fmt.Errorf("%w: %s has no %s; install a driver of CUDA 12 or newer", ErrTooOld, l.path, C.GoString(missing))
	}
	if err := check("cuInit", C.overlapd_cuda_init(l.table)); err != nil {
		return nil, err
	}
	return l, nil
}

// check returns an error for a failed call, with the call's name.
func check(call string, r C.cu_result) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", call, Result(r))
}

// device is a GPU or MIG instance that this process sees. Its UUID has no prefix "GPU-"
// or "MIG-", because the driver does not distinguish them.
type device struct {
	Ordinal    int
	UUID, Name string

	// Major and Minor are the compute capability.
	Major, Minor int

	// MPS is 1 if contexts of the device are shared through MPS, 0 if not, and
	// negative if that is not known.
	MPS        int
	TotalBytes int64
	device     C.cu_device
}

func (d device) capability() string { return fmt.Sprintf("%d.%d", d.Major, d.Minor) }

func (l *Library) devices() ([]device, error) {
	var n C.int
	if err := check("cuDeviceGetCount", C.overlapd_cuda_device_count(l.table, &n)); err != nil {
		return nil, err
	}
	devices := make([]device, n)
	for i := range devices {
		var d C.struct_overlapd_device
		if err := check("describe GPU "+strconv.Itoa(i), C.overlapd_cuda_describe(l.table, C.int(i), &d)); err != nil {
			return nil, err
		}
		id := C.GoBytes(unsafe.Pointer(&d.uuid[0]), 16)
		devices[i] = device{
			Ordinal: i, UUID: fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), Name: C.GoString(&d.name[0]),
			Major: int(d.major), Minor: int(d.minor), MPS: int(d.mps), TotalBytes: int64(d.bytes), device: d.device,
		}
	}
	return devices, nil
}

// find returns the device with an ordinal of at most three digits, or with a UUID that
// begins with the name. A longer number is taken for the beginning of a UUID.
func (l *Library) find(name string) (device, error) {
	devices, err := l.devices()
	if err != nil {
		return device{}, err
	}
	ordinal, err := strconv.Atoi(cmp.Or(name, "0"))
	byOrdinal := err == nil && len(name) < 4
	short := strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(name, "GPU-"), "MIG-"))
	var found []device
	var names []string
	for _, d := range devices {
		if byOrdinal && d.Ordinal == ordinal || !byOrdinal && short != "" && strings.HasPrefix(d.UUID, short) {
			found = append(found, d)
		}
		names = append(names, fmt.Sprintf("%d (%s, %s)", d.Ordinal, d.Name, d.UUID))
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return device{}, fmt.Errorf("%w: %q fits %d of %s; list them with nvidia-smi -L and check CUDA_VISIBLE_DEVICES",
		ErrNotFound, name, len(found), cmp.Or(strings.Join(names, ", "), "no devices"))
}
