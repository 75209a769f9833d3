package driver

/*
#include "library.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Address is a place in the memory of a device. It is not for Go to read.
type Address uint64

// Alloc returns memory of the device, aligned to 256 bytes. The call waits for
// nothing, but is far too slow for the way of a query.
func (c *Context) Alloc(bytes int64) (Address, error) {
	if bytes <= 0 {
		return 0, fmt.Errorf("cuMemAlloc of %d bytes: %w", bytes, InvalidValue)
	}
	var a C.cu_address
	if r := C.overlapd_cuda_memory_alloc(c.lib.table, c.context, &a, C.size_t(bytes)); r != 0 {
		return 0, fmt.Errorf("cuMemAlloc of %d bytes: %w", bytes, Result(r))
	}
	c.open.memory.Add(1)
	return Address(a), nil
}

// Free gives memory back, once all work that was queued before has ended.
func (c *Context) Free(a Address) error {
	err := check("cuMemFree", C.overlapd_cuda_memory_free(c.lib.table, c.context, C.cu_address(a)))
	if err == nil {
		c.open.memory.Add(-1)
	}
	return err
}

// Flags of cuMemHostRegister.
const (
	registerPortable = 1
	registerReadOnly = 8
)

// Pin keeps host memory in place, so that copies from and to it need no detour.
// All of its pages are taken from the system. The memory starts at a page;
// readOnly says that this process cannot write it.
func (c *Context) Pin(memory []byte, readOnly bool) error {
	flags := C.unsigned(registerPortable)
	if readOnly {
		flags |= registerReadOnly
	}
	r := C.overlapd_cuda_host_register(c.lib.table, c.context, unsafe.Pointer(unsafe.SliceData(memory)), C.size_t(len(memory)), flags)
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
