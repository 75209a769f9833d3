package ort

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Level is how much a graph is rewritten before it runs.
type Level int

// The optimization levels. The zero value takes a graph as it is.
const (
	None Level = iota
	Basic
	Extended
	Layout
	All Level = 99
)

// Keys of the session's configuration that this package sets itself.
const (
	keyEnvAllocators = "session.use_env_allocators"
	keySpin          = "session.intra_op.allow_spinning"
)

// SessionOptions configures a Session. The zero value takes the model as it
// is and shares the Env's threads and arena.
type SessionOptions struct {
	Optimization Level
	// OptimizedModelPath is a file to write the optimized model to.
	OptimizedModelPath string
	// PerSessionThreads gives the session a pool of its own. 0, what serving
	// uses, shares the Env's.
	PerSessionThreads int
	// OwnArena gives the session an arena of its own even if the Env has one.
	OwnArena bool
	// CUDA puts the session on a GPU, nil on the CPU. Operators that have no
	// kernel there run on the CPU.
	CUDA *CUDAOptions
	// Config holds further entries of the runtime's session configuration.
	Config   map[string]string
	LogID    string // names the session in log messages and errors
	LogLevel LogLevel
}

// sessionOptions is what the runtime takes. The caller releases it.
func (e *Env) sessionOptions(o SessionOptions) (*C.OrtSessionOptions, error) {
	var options *C.OrtSessionOptions
	if err := e.lib.check(C.ort_CreateSessionOptions(e.lib.api, &options)); err != nil {
		return nil, err
	}
	if err := e.setSessionOptions(options, o); err != nil {
		C.ort_ReleaseSessionOptions(e.lib.api, options)
		return nil, err
	}
	return options, nil
}

func (e *Env) setSessionOptions(options *C.OrtSessionOptions, o SessionOptions) error {
	l := e.lib
	err := l.check(C.ort_SetSessionGraphOptimizationLevel(l.api, options, C.int(o.Optimization)))
	if err == nil {
		err = e.setThreads(options, o.PerSessionThreads)
	}
	if err == nil && e.options.SharedArena && !o.OwnArena {
		err = e.addConfig(options, keyEnvAllocators, "1")
	}
	if err == nil && o.LogLevel != LogDefault {
		err = l.check(C.ort_SetSessionLogSeverityLevel(l.api, options, o.LogLevel.severity()))
	}
	if err == nil && o.LogID != "" {
		id := C.CString(o.LogID)
		defer C.free(unsafe.Pointer(id))
		err = l.check(C.ort_SetSessionLogId(l.api, options, id))
	}
	if err == nil && o.OptimizedModelPath != "" {
		path := C.CString(o.OptimizedModelPath)
		defer C.free(unsafe.Pointer(path))
		err = l.check(C.ort_SetOptimizedModelFilePath(l.api, options, path))
	}
	if err == nil && o.CUDA != nil {
		err = e.appendCUDA(options, o.CUDA)
	}
	for key, value := range o.Config {
		if err == nil {
			err = e.addConfig(options, key, value)
		}
	}
	return err
}

func (e *Env) setThreads(options *C.OrtSessionOptions, own int) error {
	l := e.lib
	if own < 0 {
		return fmt.Errorf("ort: a pool of %d threads", own)
	}
	if own == 0 {
		return l.check(C.ort_DisablePerSessionThreads(l.api, options))
	}
	if err := l.check(C.ort_SetIntraOpNumThreads(l.api, options, C.int(own))); err != nil {
		return err
	}
	if err := l.check(C.ort_SetInterOpNumThreads(l.api, options, 1)); err != nil {
		return err
	}
	if e.options.Spin {
		return nil
	}
	return e.addConfig(options, keySpin, "0")
}

func (e *Env) addConfig(options *C.OrtSessionOptions, key, value string) error {
	k, v := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(k))
	defer C.free(unsafe.Pointer(v))
	return e.lib.check(C.ort_AddSessionConfigEntry(e.lib.api, options, k, v))
}

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
