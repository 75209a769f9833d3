package ort

/*
#include <stdlib.h>
#include "arena.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// logFatal is the lowest severity that the runtime may log to stderr. It would log failures
// there that it also returns as errors.
const logFatal = 4

// EnvOptions configures an Env. The zero value is usable.
type EnvOptions struct {
	// IntraThreads is the number of threads that work on one operator, including the one
	// that calls Run. With 0 the runtime chooses one per physical core.
	IntraThreads int
	// Spin makes waiting threads spin for a while before they sleep.
	Spin bool
	// Name appears in log messages.
	Name string
	// OpLibraries are shared libraries with custom operators, for sessions with CustomOps. They
	// become a part of this process and stay loaded until it ends.
	OpLibraries []string
}

// Env is the runtime's state in this process: one thread pool and one arena, which all
// sessions share. Its methods are safe for concurrent use.
type Env struct {
	lib     *Library
	options EnvOptions
	env     *C.OrtEnv

	// memory describes CPU memory, for tensors on memory of ours.
	memory *C.OrtMemoryInfo

	// allocator is the runtime's own, and is never released.
	allocator *C.OrtAllocator
	arena     *C.struct_overlapd_arena
	async     *C.OrtRunOptions                            // makes a run on a GPU return when its kernels are queued
	prepacked [PackedSets]*C.OrtPrepackedWeightsContainer // what sessions share of Weights in another form
	operators []opLibrary
	open      struct {
		sessions, values, programs, memories atomic.Int64
	}
}

// envOpen is set while an Env is open. The runtime would return the existing one and ignore
// the options of the second.
var envOpen atomic.Bool

// NewEnv creates the Env of the process.
func (l *Library) NewEnv(options EnvOptions) (*Env, error) {
	if !envOpen.CompareAndSwap(false, true) {
		return nil, ErrEnvOpen
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
		// Operators of one model never overlap; overlap is the scheduler's task.
		func() *C.OrtStatus { return C.ort_SetGlobalInterOpNumThreads(l.api, threads, 1) },
		func() *C.OrtStatus { return C.ort_SetGlobalSpinControl(l.api, threads, flag(e.options.Spin)) },
		func() *C.OrtStatus {
			return C.ort_CreateEnvWithGlobalThreadPools(l.api, logFatal, name, threads, &e.env)
		},
		func() *C.OrtStatus { return C.ort_DisableTelemetryEvents(l.api, e.env) },
		func() *C.OrtStatus { return C.ort_GetAllocatorWithDefaultOptions(l.api, &e.allocator) },
		func() *C.OrtStatus {
			return C.ort_CreateCpuMemoryInfo(l.api, deviceAllocator, defaultMemory, &e.memory)
		},
		func() *C.OrtStatus { return C.ort_CreatePrepackedWeightsContainer(l.api, &e.prepacked[0]) },
		func() *C.OrtStatus { return C.ort_CreatePrepackedWeightsContainer(l.api, &e.prepacked[1]) },
	} {
		if err := l.check(step()); err != nil {
			return err
		}
	}
	var err error
	if e.async, err = asyncOptions(l, noGraph); err != nil {
		return err
	}
	for _, path := range e.options.OpLibraries {
		library, err := openOpLibrary(path)
		if err != nil {
			return err
		}
		e.operators = append(e.operators, library)
	}
	if e.arena = C.overlapd_arena_new(e.allocator, e.memory); e.arena == nil {
		return ErrNoMemory
	}
	return l.check(C.ort_RegisterAllocator(l.api, e.env, &e.arena.allocator))
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Library returns the library that the Env belongs to.
func (e *Env) Library() *Library { return e.lib }

// ArenaBytes returns how much CPU memory the runtime uses for all sessions together: for
// weights, for values that it allocated, and as scratch memory of operators.
func (e *Env) ArenaBytes() int64 { return atomic.LoadInt64((*int64)(&e.arena.in_use)) }

// LimitArena makes operators fail with ErrArenaFull if they would take ArenaBytes above
// bytes, until UnlimitArena.
func (e *Env) LimitArena(bytes int64) { C.overlapd_arena_limit(e.arena, C.int64_t(bytes)) }

// UnlimitArena removes the limit that LimitArena set.
func (e *Env) UnlimitArena() { atomic.StoreInt64((*int64)(&e.arena.limit), 0) }

// ThreadBytes returns how many bytes of ArenaBytes the calling thread has taken more than it
// has given back. Operators take memory on the thread that calls Run, so a difference is what
// runs of this thread keep, whatever other threads do meanwhile.
func (e *Env) ThreadBytes() int64 { return int64(C.overlapd_arena_thread()) }

// ThreadPeak starts to track ThreadBytes, and returns a function that returns its maximum
// since then. Both calls must come from the same thread.
func (e *Env) ThreadPeak() (peak func() int64) {
	C.overlapd_arena_thread_peak(true)
	return func() int64 { return int64(C.overlapd_arena_thread_peak(false)) }
}

// Trim returns memory that the arena keeps for reuse to the system. It has to search the
// whole heap, so it is slow.
func (e *Env) Trim() { C.overlapd_arena_trim() }

// refusals returns how many allocations the arena has rejected so far.
func (e *Env) refusals() int64 { return atomic.LoadInt64((*int64)(&e.arena.refusals)) }

// ran turns the status of a run into an error. before is refusals before the run. If the
// arena has rejected an allocation since, that is ErrArenaFull with the size, which the
// runtime's own message does not have.
func (e *Env) ran(status *C.OrtStatus, before int64) error {
	err := e.lib.check(status)
	if err == nil {
		return nil
	}
	if e.refusals() != before {
		refused := atomic.LoadInt64((*int64)(&e.arena.refused))
		if left := atomic.LoadInt64((*int64)(&e.arena.limit)) - e.ArenaBytes(); left < refused {
			return fmt.Errorf("%w: %d bytes requested, %d left", ErrArenaFull, refused, max(left, 0))
		}
		return fmt.Errorf("%w: it has too many values for their records to fit", ErrArenaFull)
	}
	return err
}

// Close releases the Env. If objects made from it are still open, it returns ErrLeak with
// their number and releases nothing, because they depend on the Env. Close them and call it
// again.
func (e *Env) Close() error {
	if e.env == nil {
		return ErrClosed
	}
	var leaks []error
	for what, open := range map[string]*atomic.Int64{
		"sessions": &e.open.sessions, "values": &e.open.values, "programs": &e.open.programs, "memories": &e.open.memories,
	} {
		if n := open.Load(); n != 0 {
			leaks = append(leaks, fmt.Errorf("%w: %d %s", ErrLeak, n, what))
		}
	}
	if len(leaks) > 0 {
		return errors.Join(leaks...)
	}
	e.release()
	return nil
}

func (e *Env) release() {
	if e.async != nil {
		C.ort_ReleaseRunOptions(e.lib.api, e.async)
		e.async = nil
	}
	for i, packed := range e.prepacked {
		if packed != nil {
			C.ort_ReleasePrepackedWeightsContainer(e.lib.api, packed)
			e.prepacked[i] = nil
		}
	}
	if e.env != nil {
		C.ort_ReleaseEnv(e.lib.api, e.env)
		e.env = nil
	}
	if e.memory != nil {
		C.ort_ReleaseMemoryInfo(e.lib.api, e.memory)
		e.memory = nil
	}
	C.free(unsafe.Pointer(e.arena))
	e.arena = nil
	envOpen.Store(false)
}

// The runtime's numbers for describing memory: the kind of allocator, which is either not
// one of its arenas or is one, and memory for any use.
const (
	deviceAllocator = 0
	arenaAllocator  = 1
	defaultMemory   = 0
)

// config returns the runtime's description of the arena. The caller releases it.
func (a sharedArena) config(l *Library) (*C.OrtArenaCfg, error) {
	keys := [...]*C.char{C.CString("arena_extend_strategy"), C.CString("max_mem")}
	values := [...]C.size_t{C.size_t(flag(!a.doubles)), C.size_t(a.limitBytes)}
	for _, key := range keys {
		defer C.free(unsafe.Pointer(key))
	}
	var config *C.OrtArenaCfg
	err := l.check(C.ort_CreateArenaCfgV2(l.api, &keys[0], &values[0], C.size_t(len(keys)), &config))
	return config, err
}
