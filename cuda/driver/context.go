package driver

/*
#include "library.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ContextOptions says how this process uses a device.
type ContextOptions struct {
	// Spin lets a thread that waits for the GPU burn its core, which answers
	// some tens of microseconds earlier. Without it the thread sleeps.
	Spin bool
}

// Flags of cuDevicePrimaryCtxSetFlags.
const (
	scheduleSpin  = 1
	scheduleBlock = 4
)

// Context is the use that this process makes of a device: the device's primary
// context, which ONNX Runtime shares. Its methods may be called by any
// goroutine.
type Context struct {
	lib     *Library
	device  Device
	context C.cu_context
	open    struct{ memory, streams, events, pins atomic.Int64 }
}

// Retain makes the primary context of the device, or joins it. The options hold
// if nobody in this process has made it before.
func (l *Library) Retain(d Device, o ContextOptions) (*Context, error) {
	flags := C.unsigned(scheduleBlock)
	if o.Spin {
		flags = scheduleSpin
	}
	c := &Context{lib: l, device: d}
	if err := check("cuDevicePrimaryCtxRetain", C.overlapd_cuda_context_retain(l.table, &c.context, d.device, flags)); err != nil {
		return nil, fmt.Errorf("GPU %d (%s): %w", d.Ordinal, d.Name, err)
	}
	return c, nil
}

// Device returns what the context was made for.
func (c *Context) Device() Device { return c.device }

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
	if err := c.leaks(); err != nil {
		return err
	}
	err := check("cuDevicePrimaryCtxRelease", C.overlapd_cuda_context_release(c.lib.table, c.device.device))
	c.context = nil
	return err
}

func (c *Context) leaks() error {
	var all []error
	for _, kind := range []struct {
		name string
		open *atomic.Int64
	}{
		{"blocks of memory", &c.open.memory},
		{"streams", &c.open.streams},
		{"events", &c.open.events},
		{"pinned ranges", &c.open.pins},
	} {
		if n := kind.open.Load(); n != 0 {
			all = append(all, fmt.Errorf("%w: %d %s", ErrLeak, n, kind.name))
		}
	}
	return errors.Join(all...)
}
