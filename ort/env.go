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

// logFatal is the least severe message that the runtime may write to stderr, as it numbers
// them. What fails is returned as an error, whose message it would write there as well.
const logFatal = 4

// EnvOptions configures an Env. The zero value is usable.
type EnvOptions struct {
	// IntraThreads is the number of threads that work on one operator,
	// counting the one that calls Run. 0 leaves it to the runtime: one per
	// physical core.
	IntraThreads int
	// Spin lets waiting threads burn their core for a while before they sleep.
	Spin bool
	// Name appears in log messages.
	Name string
}

// Env is the runtime's state in this process: one pool of threads and one
// arena, shared by all sessions. Its methods may be called by any goroutine.
type Env struct {
	lib       *Library
	options   EnvOptions
	env       *C.OrtEnv
	memory    *C.OrtMemoryInfo // the CPU's, where tensors on our memory lie
	allocator *C.OrtAllocator  // the runtime's own, never released
	arena     *C.struct_overlapd_arena
	async     *C.OrtRunOptions                            // makes a run on a GPU return when its kernels are queued
	prepacked [PackedSets]*C.OrtPrepackedWeightsContainer // what sessions share of Weights in another form
	open      struct {
		sessions, values, programs, memories atomic.Int64
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

// Library returns the library the Env was made from.
func (e *Env) Library() *Library { return e.lib }

// ArenaBytes returns how much memory of the CPU the runtime has for all sessions
// together: weights, values that it made, and what operators work in.
func (e *Env) ArenaBytes() int64 { return atomic.LoadInt64((*int64)(&e.arena.in_use)) }

// LimitArena has operators fail with ErrArenaFull that would take so many bytes more
// than ArenaBytes returns now, until Unlimit.
func (e *Env) LimitArena(room int64) { C.overlapd_arena_limit(e.arena, C.int64_t(room)) }

// UnlimitArena ends LimitArena.
func (e *Env) UnlimitArena() { atomic.StoreInt64((*int64)(&e.arena.limit), 0) }

// ArenaPeak begins to watch ArenaBytes, and returns what returns the most that it has
// been since.
func (e *Env) ArenaPeak() (peak func() int64) {
	atomic.StoreInt64((*int64)(&e.arena.peak), e.ArenaBytes())
	return func() int64 { return atomic.LoadInt64((*int64)(&e.arena.peak)) }
}

// Trim gives the memory that the arena keeps for later back to the system. It takes
// as long as it takes to look through it.
func (e *Env) Trim() { C.overlapd_arena_trim() }

// ran turns the status of a run into an error, which is ErrArenaFull where the arena
// had no room: what the runtime makes of that does not say how much was wanted.
func (e *Env) ran(status *C.OrtStatus) error {
	err := e.lib.check(status)
	if err == nil {
		return nil
	}
	if refused := atomic.SwapInt64((*int64)(&e.arena.refused), 0); refused > 0 {
		if left := int64(e.arena.limit) - e.ArenaBytes(); left < refused {
			return fmt.Errorf("%w: %d bytes asked for, %d left", ErrArenaFull, refused, max(left, 0))
		}
		return fmt.Errorf("%w: its values are so many that the records of them exceed it", ErrArenaFull)
	}
	return err
}

// Close releases the Env. If things made from it are still open, it returns
// ErrLeak with their number and releases nothing: they would lose the ground
// they stand on. Close them and call it again.
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

// What a memory of the runtime is made for: an allocator that is none of its arenas or
// one that is, and any use.
const (
	deviceAllocator = 0
	arenaAllocator  = 1
	defaultMemory   = 0
)

// config describes the arena to the runtime. The caller releases the result.
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
