package driver

/*
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
	"errors"
	"time"
)

// Event is a mark in a stream, and the time at which the device passed it.
type Event struct {
	context *Context
	event   C.cu_event
}

const eventBlockingSync = 1

// NewEvent returns an event that has not been recorded. A thread that waits for
// it sleeps, unless spin is set.
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

// Record puts the mark behind all that is queued in s.
func (e *Event) Record(s *Stream) error {
	return check("cuEventRecord", C.overlapd_cuda_event_record(e.context.lib.table, e.context.context, e.event, s.stream))
}

// Done reports whether the device has passed the mark.
func (e *Event) Done() (bool, error) {
	err := check("cuEventQuery", C.overlapd_cuda_event_query(e.context.lib.table, e.context.context, e.event))
	if errors.Is(err, NotReady) {
		return false, nil
	}
	return err == nil, err
}

// Sync waits until the device has passed the mark.
func (e *Event) Sync() error {
	return check("cuEventSynchronize", C.overlapd_cuda_event_sync(e.context.lib.table, e.context.context, e.event))
}

// Since returns how long after an earlier event the device passed this one. It
// must have passed both. The device counts in half microseconds.
func (e *Event) Since(earlier *Event) (time.Duration, error) {
	var milliseconds C.float
	err := check("cuEventElapsedTime",
		C.overlapd_cuda_event_elapsed(e.context.lib.table, e.context.context, &milliseconds, earlier.event, e.event))
	return time.Duration(float64(milliseconds) * float64(time.Millisecond)), err
}

// Close gives the event back.
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
