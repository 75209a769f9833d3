package driver

/*
#cgo nocallback overlapd_cuda_copy_in
#cgo nocallback overlapd_cuda_copy_out
#cgo noescape overlapd_cuda_copy
#cgo nocallback overlapd_cuda_copy
#cgo noescape overlapd_cuda_stream_sync
#cgo nocallback overlapd_cuda_stream_sync
#include "library.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Stream is a queue of work on a device. It does not wait for the default
// stream of the process. It belongs to one goroutine at a time.
type Stream struct {
	context *Context
	stream  C.cu_stream
}

const streamNonBlocking = 1

// NewStream returns a stream. A greater priority makes the device prefer its
// kernels wherever one of several streams of this process goes first: 0 is the
// default, and what the device does not have is cut to what it has.
func (c *Context) NewStream(priority int) (*Stream, error) {
	var least, greatest C.int
	if err := check("cuCtxGetStreamPriorityRange", C.overlapd_cuda_priority_range(c.lib.table, c.context, &least, &greatest)); err != nil {
		return nil, err
	}
	// The driver counts the other way round: the greatest is the lowest number.
	number := min(max(C.int(-priority), greatest), least)
	s := &Stream{context: c}
	err := check("cuStreamCreateWithPriority",
		C.overlapd_cuda_stream_create(c.lib.table, c.context, &s.stream, streamNonBlocking, number))
	if err != nil {
		return nil, err
	}
	c.open.streams.Add(1)
	return s, nil
}

// Pointer returns the stream as ONNX Runtime wants it.
func (s *Stream) Pointer() unsafe.Pointer { return unsafe.Pointer(s.stream) }

// CopyIn queues a copy from host memory. src must not change or go away before
// the stream has been synchronized, and must not be memory that Go moves.
func (s *Stream) CopyIn(dst Address, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	r := C.overlapd_cuda_copy_in(s.context.lib.table, s.context.context,
		C.cu_address(dst), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)), s.stream)
	return copied("cuMemcpyHtoDAsync", len(src), r)
}

// CopyOut queues a copy to host memory, which holds the bytes once the stream
// has been synchronized. It must not be memory that Go moves.
func (s *Stream) CopyOut(dst []byte, src Address) error {
	if len(dst) == 0 {
		return nil
	}
	r := C.overlapd_cuda_copy_out(s.context.lib.table, s.context.context,
		unsafe.Pointer(unsafe.SliceData(dst)), C.cu_address(src), C.size_t(len(dst)), s.stream)
	return copied("cuMemcpyDtoHAsync", len(dst), r)
}

// Copy queues a copy within the device.
func (s *Stream) Copy(dst, src Address, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	r := C.overlapd_cuda_copy(s.context.lib.table, s.context.context,
		C.cu_address(dst), C.cu_address(src), C.size_t(bytes), s.stream)
	return copied("cuMemcpyDtoDAsync", int(bytes), r)
}

func copied(call string, bytes int, r C.cu_result) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("%s of %d bytes: %w", call, bytes, Result(r))
}

// Sync waits until the device has done all that was queued. It returns the
// first error of that work.
func (s *Stream) Sync() error {
	return check("cuStreamSynchronize", C.overlapd_cuda_stream_sync(s.context.lib.table, s.context.context, s.stream))
}

// Close gives the stream back. What is queued still runs.
func (s *Stream) Close() error {
	if s.stream == nil {
		return ErrClosed
	}
	err := check("cuStreamDestroy", C.overlapd_cuda_stream_destroy(s.context.lib.table, s.context.context, s.stream))
	if err == nil {
		s.stream = nil
		s.context.open.streams.Add(-1)
	}
	return err
}
