package ort

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import "unsafe"

// NoSync is the key of a RunOptions entry. With the value "1" a run on a GPU
// returns when its kernels are queued, not when they have run.
const NoSync = "disable_synchronize_execution_providers"

// RunOptions are options of a run. One may be used for many runs, one after
// the other or at once. A nil *RunOptions means the defaults.
type RunOptions struct {
	env     *Env
	options *C.OrtRunOptions
}

// NewRunOptions returns default options.
func (e *Env) NewRunOptions() (*RunOptions, error) {
	if e.env == nil {
		return nil, ErrClosed
	}
	ro := &RunOptions{env: e}
	if err := e.lib.check(C.ort_CreateRunOptions(e.lib.api, &ro.options)); err != nil {
		return nil, err
	}
	e.open.runOptions.Add(1)
	return ro, nil
}

// SetTerminate makes the runs that use these options fail as soon as they can,
// also those under way, from any goroutine, until UnsetTerminate. To stop
// between two operators and go on later, use the stop flag of Program.Run.
func (ro *RunOptions) SetTerminate() error {
	if ro.options == nil {
		return ErrClosed
	}
	return ro.env.lib.check(C.ort_RunOptionsSetTerminate(ro.env.lib.api, ro.options))
}

// UnsetTerminate undoes SetTerminate. No run may be under way.
func (ro *RunOptions) UnsetTerminate() error {
	if ro.options == nil {
		return ErrClosed
	}
	return ro.env.lib.check(C.ort_RunOptionsUnsetTerminate(ro.env.lib.api, ro.options))
}

// SetTag names the run in log messages.
func (ro *RunOptions) SetTag(tag string) error {
	if ro.options == nil {
		return ErrClosed
	}
	c := C.CString(tag)
	defer C.free(unsafe.Pointer(c))
	return ro.env.lib.check(C.ort_RunOptionsSetRunTag(ro.env.lib.api, ro.options, c))
}

// SetLogLevel says what the run may log.
func (ro *RunOptions) SetLogLevel(level LogLevel) error {
	if ro.options == nil {
		return ErrClosed
	}
	if level == LogDefault {
		level = ro.env.options.LogLevel
	}
	return ro.env.lib.check(C.ort_RunOptionsSetRunLogSeverityLevel(ro.env.lib.api, ro.options, level.severity()))
}

// AddConfigEntry sets an entry of the runtime's run configuration.
func (ro *RunOptions) AddConfigEntry(key, value string) error {
	if ro.options == nil {
		return ErrClosed
	}
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return ro.env.lib.check(C.ort_AddRunConfigEntry(ro.env.lib.api, ro.options, k, v))
}

func (ro *RunOptions) pointer() *C.OrtRunOptions {
	if ro == nil {
		return nil
	}
	return ro.options
}

// Close releases the options. No run may be under way.
func (ro *RunOptions) Close() error {
	if ro.options == nil {
		return ErrClosed
	}
	C.ort_ReleaseRunOptions(ro.env.lib.api, ro.options)
	ro.options = nil
	ro.env.open.runOptions.Add(-1)
	return nil
}
