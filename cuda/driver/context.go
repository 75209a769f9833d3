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

// Flags of cuDevicePrimaryCtxSetFlags, and of cuMemHostRegister.
const (
	scheduleSpin     = 1
	scheduleBlock    = 4
	registerPortable = 1
)

// Context is the use that this process makes of a device: the device's primary
// context, which ONNX Runtime shares. Its methods may be called by any
// goroutine.
type Context struct {
	lib     *Library
	device  device
	context C.cu_context
	open    struct{ memory, streams, events, pins atomic.Int64 }
}

// Retain makes the primary context of a device, or joins it. The device is the one
// with this ordinal or UUID, "" for the first; a UUID may have the prefix "GPU-" or
// "MIG-" and be cut short if one device only fits. With spin a thread that waits for
// the GPU burns its core, which answers some tens of microseconds earlier, instead of
// sleeping, if nobody in this process has made the context before.
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

// Ordinal returns the number of the device among those that are visible to this
// process, which CUDA_VISIBLE_DEVICES decides.
func (c *Context) Ordinal() int { return c.device.Ordinal }

// Name returns the name of the device and its compute capability.
func (c *Context) Name() string {
	return fmt.Sprintf("%s, compute capability %s", c.device.Name, c.device.capability())
}

// MPS reports whether an MPS server runs the work of this process. Drivers before that of
// CUDA 12.1 do not know.
func (c *Context) MPS() (on, known bool) { return c.device.MPS > 0, c.device.MPS >= 0 }

// MemInfo returns the memory of the device that is free, to whomever takes it
// first, and all of it.
func (c *Context) MemInfo() (free, total int64, err error) {
	var f, t C.size_t
	err = check("cuMemGetInfo", C.overlapd_cuda_memory_info(c.lib.table, c.context, &f, &t))
	return int64(f), int64(t), err
}

// Release gives the context back. If things made from it are still open, it
// returns ErrLeak with their number and releases nothing. Close them and call
// it again.
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

// Alloc returns the address of memory of the device, aligned to 256 bytes. The call
// waits for nothing, but is far too slow for the way of a query.
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

// Free gives memory back, once all work that was queued before has ended.
func (c *Context) Free(a uint64) error {
	err := check("cuMemFree", C.overlapd_cuda_memory_free(c.lib.table, c.context, C.cu_address(a)))
	if err == nil {
		c.open.memory.Add(-1)
	}
	return err
}

// Pin keeps host memory in place, so that copies from and to it need no detour.
// All of its pages are taken from the system. The memory starts at a page, and this
// process can write it: many a GPU does not take what can only be read.
func (c *Context) Pin(memory []byte) error {
	r := C.overlapd_cuda_host_register(c.lib.table, c.context, unsafe.Pointer(unsafe.SliceData(memory)), C.size_t(len(memory)), registerPortable)
	if r != 0 {
		return fmt.Errorf("cuMemHostRegister of %d bytes: %w", len(memory), Result(r))
	}
	c.open.pins.Add(1)
	return nil
}

// Unpin undoes Pin.
func (c *Context) Unpin(memory []byte) error {
	err := check("cuMemHostUnregister",
		C.overlapd_cuda_host_unregister(c.lib.table, c.context, unsafe.Pointer(unsafe.SliceData(memory))))
	if err == nil {
		c.open.pins.Add(-1)
	}
	return err
}
