package ort

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// LogLevel is the least severe message that the runtime writes to stderr.
type LogLevel int

// The log levels.
const (
	LogDefault LogLevel = iota // warnings for an Env, the Env's level for a session or run
	LogVerbose
	LogInfo
	LogWarning
	LogError
	LogFatal
)

// severity returns the level as the runtime numbers it.
func (l LogLevel) severity() C.int { return C.int(l - LogVerbose) }

// EnvOptions configures an Env. The zero value is usable.
type EnvOptions struct {
	// IntraThreads is the number of threads that work on one operator,
	// counting the one that calls Run. 0 leaves it to the runtime: one per
	// physical core.
	IntraThreads int
	// Spin lets waiting threads burn their core for a while before they sleep.
	Spin bool
	// SharedArena makes one arena serve all sessions that do not ask for
	// their own.
	SharedArena bool
	Arena       ArenaOptions
	LogLevel    LogLevel
	Name        string // appears in log messages
}

// Env is the runtime's state in this process: one pool of threads and one
// arena, shared by all sessions. Its methods may be called by any goroutine.
type Env struct {
	lib       *Library
	options   EnvOptions
	env       *C.OrtEnv
	memory    *C.OrtMemoryInfo // where tensors on our memory lie: the CPU
	allocator *C.OrtAllocator  // the runtime's own, never released
	open      struct {
		sessions, values, programs, runOptions, memories atomic.Int64
	}
}

// envOpen holds while an Env is open. The runtime would return the first one
// again and ignore the second's options.
var envOpen atomic.Bool

// NewEnv creates the process's Env.
func (l *Library) NewEnv(options EnvOptions) (*Env, error) {
	if !envOpen.CompareAndSwap(false, true) {
		return nil, ErrEnvOpen
	}
	if options.LogLevel == LogDefault {
		options.LogLevel = LogWarning
	}
	e := &Env{lib: l, options: options}
	if err := e.create(); err != nil {
		e.release()
		return nil, err
	}
	return e, nil
}

func (e *Env) create() error {
	if e.options.IntraThreads < 0 {
		return fmt.Errorf("ort: a pool of %d threads", e.options.IntraThreads)
	}
	l := e.lib
	var threads *C.OrtThreadingOptions
	if err := l.check(C.ort_CreateThreadingOptions(l.api, &threads)); err != nil {
		return err
	}
	defer C.ort_ReleaseThreadingOptions(l.api, threads)
	name := C.CString(e.options.Name)
	defer C.free(unsafe.Pointer(name))
	for _, step := range []func() *C.OrtStatus{
		func() *C.OrtStatus {
			return C.ort_SetGlobalIntraOpNumThreads(l.api, threads, C.int(e.options.IntraThreads))
		},
		// Operators of one model never run side by side: that is the scheduler's part.
		func() *C.OrtStatus { return C.ort_SetGlobalInterOpNumThreads(l.api, threads, 1) },
		func() *C.OrtStatus { return C.ort_SetGlobalSpinControl(l.api, threads, flag(e.options.Spin)) },
		func() *C.OrtStatus {
			return C.ort_CreateEnvWithGlobalThreadPools(l.api, e.options.LogLevel.severity(), name, threads, &e.env)
		},
		func() *C.OrtStatus { return C.ort_DisableTelemetryEvents(l.api, e.env) },
		func() *C.OrtStatus { return C.ort_GetAllocatorWithDefaultOptions(l.api, &e.allocator) },
		func() *C.OrtStatus {
			return C.ort_CreateCpuMemoryInfo(l.api, arenaAllocator, defaultMemory, &e.memory)
		},
	} {
		if err := l.check(step()); err != nil {
			return err
		}
	}
	if e.options.SharedArena {
		return e.registerArena()
	}
	return nil
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Library returns the library the Env was made from.
func (e *Env) Library() *Library { return e.lib }

// Close releases the Env. If things made from it are still open, it returns
// ErrLeak with their number and releases nothing: they would lose the ground
// they stand on. Close them and call it again.
func (e *Env) Close() error {
	if e.env == nil {
		return ErrClosed
	}
	if err := e.leaks(); err != nil {
		return err
	}
	e.release()
	return nil
}

func (e *Env) leaks() error {
	var all []error
	for _, kind := range []struct {
		name string
		open *atomic.Int64
	}{
		{"sessions", &e.open.sessions},
		{"values", &e.open.values},
		{"programs", &e.open.programs},
		{"run options", &e.open.runOptions},
		{"memories", &e.open.memories},
	} {
		if n := kind.open.Load(); n != 0 {
			all = append(all, fmt.Errorf("%w: %d %s", ErrLeak, n, kind.name))
		}
	}
	return errors.Join(all...)
}

func (e *Env) release() {
	if e.memory != nil {
		C.ort_ReleaseMemoryInfo(e.lib.api, e.memory)
		e.memory = nil
	}
	if e.env != nil {
		C.ort_ReleaseEnv(e.lib.api, e.env)
		e.env = nil
	}
	envOpen.Store(false)
}
