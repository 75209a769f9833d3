package driver

/*
#cgo nocallback overlapd_cuda_copy_in
#cgo nocallback overlapd_cuda_copy_out
#cgo noescape overlapd_cuda_stream_sync
#cgo nocallback overlapd_cuda_stream_sync
#cgo noescape overlapd_cuda_event_elapsed
#cgo nocallback overlapd_cuda_event_elapsed
#cgo noescape overlapd_cuda_event_record
#cgo nocallback overlapd_cuda_event_record
#cgo noescape overlapd_cuda_event_sync
#cgo nocallback overlapd_cuda_event_sync
#include "library.h"
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// Stream is a queue of work on a device. It does not synchronize with the process's
// default stream. It may be used by one goroutine at a time.
type Stream struct {
	context *Context
	stream  C.cu_stream
}

// streamNonBlocking is CU_STREAM_NON_BLOCKING: the stream does not synchronize with the
// default stream.
const streamNonBlocking = 1

// NewStream creates a stream.
func (c *Context) NewStream() (*Stream, error) {
	s := &Stream{context: c}
	if err := check("cuStreamCreate", C.overlapd_cuda_stream_create(c.lib.table, c.context, &s.stream, streamNonBlocking)); err != nil {
		return nil, err
	}
	c.open.streams.Add(1)
	return s, nil
}

// Pointer returns the stream in the form that ONNX Runtime takes.
func (s *Stream) Pointer() unsafe.Pointer { return unsafe.Pointer(s.stream) }

// CopyIn queues a copy from host memory. src must not change or be freed before the
// stream has been synchronized, and must not be memory that the Go runtime may move.
func (s *Stream) CopyIn(dst uint64, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	r := C.overlapd_cuda_copy_in(s.context.lib.table, s.context.context,
		C.cu_address(dst), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)), s.stream)
	return copied("cuMemcpyHtoDAsync", len(src), r)
}

// CopyOut queues a copy to host memory, which holds the bytes once the stream has been
// synchronized. It must not be memory that the Go runtime may move.
func (s *Stream) CopyOut(dst []byte, src uint64) error {
	if len(dst) == 0 {
		return nil
	}
	r := C.overlapd_cuda_copy_out(s.context.lib.table, s.context.context,
		unsafe.Pointer(unsafe.SliceData(dst)), C.cu_address(src), C.size_t(len(dst)), s.stream)
	return copied("cuMemcpyDtoHAsync", len(dst), r)
}

func copied(call string, bytes int, r C.cu_result) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("%s of %d bytes: %w", call, bytes, Result(r))
}

// Sync waits until the device has completed everything that was queued. It returns the
// first error of that work.
func (s *Stream) Sync() error {
	return check("cuStreamSynchronize", C.overlapd_cuda_stream_sync(s.context.lib.table, s.context.context, s.stream))
}

// Close destroys the stream. Work that is already queued still runs.
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

// Event is a mark in a stream. It records the time at which the device passed it.
type Event struct {
	context *Context
	event   C.cu_event
}

// eventBlockingSync is CU_EVENT_BLOCKING_SYNC: a thread that waits sleeps.
const eventBlockingSync = 1

// NewEvent creates an event that has not been recorded. A thread that waits for it
// sleeps, unless spin is set.
func (c *Context) NewEvent(spin bool) (*Event, error) {
	flags := C.unsigned(eventBlockingSync)
	if spin {
		flags = 0
	}
	e := &Event{context: c}
	if err := check("cuEventCreate", C.overlapd_cuda_event_create(c.lib.table, c.context, &e.event, flags)); err != nil {
		return nil, err
	}
	c.open.events.Add(1)
	return e, nil
}

// Record places the mark behind everything that is queued in s.
func (e *Event) Record(s *Stream) error {
	return check("cuEventRecord", C.overlapd_cuda_event_record(e.context.lib.table, e.context.context, e.event, s.stream))
}

// Sync waits until the device has passed the mark. It polls the driver for at most the
// given time, because a sleeping thread takes tens of microseconds to wake. After that it
// waits as NewEvent was told.
func (e *Event) Sync(poll time.Duration) error {
	return check("cuEventSynchronize", C.overlapd_cuda_event_sync(e.context.lib.table, e.context.context, e.event, C.int64_t(poll)))
}

// Since returns the time between an earlier event and this one. The device must have
// passed both. Its clock has a resolution of half a microsecond.
func (e *Event) Since(earlier *Event) (time.Duration, error) {
	var milliseconds C.float
	err := check("cuEventElapsedTime",
		C.overlapd_cuda_event_elapsed(e.context.lib.table, e.context.context, &milliseconds, earlier.event, e.event))
	return time.Duration(float64(milliseconds) * float64(time.Millisecond)), err
}

// Close destroys the event.
func (e *Event) Close() error {
	if e.event == nil {
		return ErrClosed
	}
	err := check("cuEventDestroy", C.overlapd_cuda_event_destroy(e.context.lib.table, e.context.context, e.event))
	if err == nil {
		e.event = nil
		e.context.open.events.Add(-1)
	}
	return err
}
