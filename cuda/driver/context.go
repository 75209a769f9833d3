package driver

/*
#include "library.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Flags of cuDevicePrimaryCtxSetFlags and cuMemHostRegister.
const (
	scheduleSpin     = 1
	scheduleBlock    = 4
	registerPortable = 1
)

// Context is this process's use of a device: the primary context of the device, which
// ONNX Runtime shares. Its methods are safe for concurrent use.
type Context struct {
	lib     *Library
	device  device
	context C.cu_context
	open    struct{ memory, streams, events, pins atomic.Int64 }
}

// Retain creates the primary context of a device, or joins the existing one. The name is
// an ordinal or a UUID, "" for the first device. A UUID may have the prefix "GPU-" or
// "MIG-", and may be shortened as long as it identifies one device.
//
// With spin, a thread that waits for the GPU keeps its core busy instead of sleeping,
// which saves some tens of microseconds. spin has an effect only if this process has not
// created the context before.
func (l *Library) Retain(name string, spin bool) (*Context, error) {
	d, err := l.find(name)
	if err != nil {
		return nil, err
	}
	flags := C.unsigned(scheduleBlock)
	if spin {
		flags = scheduleSpin
	}
	c := &Context{lib: l, device: d}
	if err := check("cuDevicePrimaryCtxRetain", C.overlapd_cuda_context_retain(l.table, &c.context, d.device, flags)); err != nil {
		return nil, fmt.Errorf("GPU %d (%s): %w", d.Ordinal, d.Name, err)
	}
	return c, nil
}

// Ordinal returns the number of the device among those visible to this process;
// CUDA_VISIBLE_DEVICES decides about that.
func (c *Context) Ordinal() int { return c.device.Ordinal }

// Name returns the name of the device and its compute capability.
func (c *Context) Name() string {
	return fmt.Sprintf("%s, compute capability %s", c.device.Name, c.device.capability())
}

// MPS reports whether an MPS server runs the work of this process. Drivers before CUDA
// 12.1 do not know.
func (c *Context) MPS() (on, known bool) { return c.device.MPS > 0, c.device.MPS >= 0 }

// MemInfo returns the free memory of the device, for which all processes compete, and
// its total memory.
func (c *Context) MemInfo() (free, total int64, err error) {
	var f, t C.size_t
	err = check("cuMemGetInfo", C.overlapd_cuda_memory_info(c.lib.table, c.context, &f, &t))
	return int64(f), int64(t), err
}

// Release releases the context. If objects made from it are still open, it returns
// ErrLeak with their number and releases nothing. Close them and call it again.
func (c *Context) Release() error {
	if c.context == nil {
		return ErrClosed
	}
	var leaks []error
	for what, open := range map[string]*atomic.Int64{
		"blocks of memory": &c.open.memory, "streams": &c.open.streams, "events": &c.open.events, "pinned ranges": &c.open.pins,
	} {
		if n := open.Load(); n != 0 {
			leaks = append(leaks, fmt.Errorf("%w: %d %s", ErrLeak, n, what))
		}
	}
	if len(leaks) > 0 {
		return errors.Join(leaks...)
	}
	err := check("cuDevicePrimaryCtxRelease", C.overlapd_cuda_context_release(c.lib.table, c.device.device))
	c.context = nil
	return err
}

// Alloc allocates memory of the device, aligned to 256 bytes, and returns its address.
// The call does not wait for queued work, but is far too slow for the path of a query.
func (c *Context) Alloc(bytes int64) (uint64, error) {
	if bytes <= 0 {
		return 0, fmt.Errorf("cuMemAlloc of %d bytes: %w", bytes, InvalidValue)
	}
	var a C.cu_address
	if r := C.overlapd_cuda_memory_alloc(c.lib.table, c.context, &a, C.size_t(bytes)); r != 0 {
		return 0, fmt.Errorf("cuMemAlloc of %d bytes: %w", bytes, Result(r))
	}
	c.open.memory.Add(1)
	return uint64(a), nil
}

// Free frees memory, after all work that was queued before has completed.
func (c *Context) Free(a uint64) error {
	err := check("cuMemFree", C.overlapd_cuda_memory_free(c.lib.table, c.context, C.cu_address(a)))
	if err == nil {
		c.open.memory.Add(-1)
	}
	return err
}

// Pin locks host memory into place, so that the GPU copies from and to it directly. That
// commits all of its pages. The memory must begin on a page boundary and be writable by
// this process, because many GPUs cannot pin read-only memory.
func (c *Context) Pin(memory []byte) error {
	r := C.overlapd_cuda_host_register(c.lib.table, c.context, unsafe.Pointer(unsafe.SliceData(memory)), C.size_t(len(memory)), registerPortable)
	if r != 0 {
		return fmt.Errorf("cuMemHostRegister of %d bytes: %w", len(memory), Result(r))
	}
	c.open.pins.Add(1)
	return nil
}

// Unpin undoes Pin. No copy from or to the memory may be queued.
func (c *Context) Unpin(memory []byte) error {
	err := check("cuMemHostUnregister",
		C.overlapd_cuda_host_unregister(c.lib.table, c.context, unsafe.Pointer(unsafe.SliceData(memory))))
	if err == nil {
		c.open.pins.Add(-1)
	}
	return err
}
