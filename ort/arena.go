package ort

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"strconv"
	"unsafe"
)

const (
	arenaAllocator = 1
	defaultMemory  = 0
)

// ArenaOptions configures the shared arena.
type ArenaOptions struct {
	// ExtendAsRequested grows the arena by what is asked for and no more.
	// Without it, each growth doubles the last one.
	ExtendAsRequested bool
	// LimitBytes bounds the arena, 0 does not.
	LimitBytes uint64
}

func (e *Env) registerArena() error {
	config, err := e.lib.arenaConfig(e.options.Arena)
	if err != nil {
		return err
	}
	defer C.ort_ReleaseArenaCfg(e.lib.api, config)
	return e.lib.check(C.ort_CreateAndRegisterAllocator(e.lib.api, e.env, e.memory, config))
}

// arenaConfig is what the runtime takes. The caller releases it.
func (l *Library) arenaConfig(o ArenaOptions) (*C.OrtArenaCfg, error) {
	strategy := C.size_t(0)
	if o.ExtendAsRequested {
		strategy = 1
	}
	keys := [...]*C.char{C.CString("arena_extend_strategy"), C.CString("max_mem")}
	values := [...]C.size_t{strategy, C.size_t(o.LimitBytes)}
	for _, key := range keys {
		defer C.free(unsafe.Pointer(key))
	}
	var config *C.OrtArenaCfg
	err := l.check(C.ort_CreateArenaCfgV2(l.api, &keys[0], &values[0], C.size_t(len(keys)), &config))
	return config, err
}

// ArenaStats is the state of an arena.
type ArenaStats struct {
	InUseBytes    uint64 // held by tensors now
	MaxInUseBytes uint64 // the most that was held at a time
	TotalBytes    uint64 // taken from the system
	Allocations   uint64 // since the arena was made
	Extensions    uint64 // how often it asked the system for more
}

// ArenaStats returns the state of the arena that the session uses, its own or
// the shared one. It is all zero as long as that was not used. (The runtime
// gives access to the shared arena only through a session.)
func (s *Session) ArenaStats() (ArenaStats, error) {
	var stats ArenaStats
	if s.session == nil {
		return stats, ErrClosed
	}
	lib := s.env.lib
	var arena *C.OrtAllocator
	if err := lib.check(C.ort_CreateAllocator(lib.api, s.session, s.env.memory, &arena)); err != nil {
		return stats, err
	}
	defer C.ort_ReleaseAllocator(lib.api, arena)
	var pairs *C.OrtKeyValuePairs
	if err := lib.check(C.ort_AllocatorGetStats(lib.api, arena, &pairs)); err != nil {
		return stats, err
	}
	defer C.ort_ReleaseKeyValuePairs(lib.api, pairs)
	var keys, values C.ort_strings
	var n C.size_t
	C.ort_GetKeyValuePairs(lib.api, pairs, &keys, &values, &n)
	texts := unsafe.Slice(values, n)
	for i, key := range unsafe.Slice(keys, n) {
		stats.set(C.GoString(key), C.GoString(texts[i]))
	}
	return stats, nil
}

func (s *ArenaStats) set(key, value string) {
	number, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return
	}
	switch key {
	case "InUse":
		s.InUseBytes = number
	case "MaxInUse":
		s.MaxInUseBytes = number
	case "TotalAllocated":
		s.TotalBytes = number
	case "NumAllocs":
		s.Allocations = number
	case "NumArenaExtensions":
		s.Extensions = number
	}
}
