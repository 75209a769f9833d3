package ort

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// CUDAProvider is the name of the execution provider for NVIDIA's GPUs.
const CUDAProvider = "CUDAExecutionProvider"

const (
	cudaRemedy = "take libonnxruntime from the PyPI package onnxruntime-gpu " + PinnedCUDAVersion +
		" for CUDA 13 and set " + PathVariable + " to it"
	cudaLibrariesRemedy = "its libonnxruntime_providers_cuda.so and libonnxruntime_providers_shared.so must lie beside " +
		"libonnxruntime.so.1, and the driver's libcuda.so.1, cuDNN 9 and CUDA's cuBLAS, cuFFT, cuRAND and runtime must be found " +
		"through LD_LIBRARY_PATH or ldconfig"
)

// ConvHeuristic is the CUDAOptions.ConvSearch that asks cuDNN for an estimate. The
// others are EXHAUSTIVE, the runtime's default, which times all algorithms once for
// each shape, and DEFAULT, which always takes the same one.
const ConvHeuristic = "HEURISTIC"

// CUDAOptions configures the CUDA execution provider of a session. The zero
// value leaves all to the runtime but TF32, which is off, as on the CPU.
type CUDAOptions struct {
	// Device is the GPU's number in the order that CUDA_VISIBLE_DEVICES gives.
	Device int
	// Stream is a CUstream of the device's primary context on which all kernels
	// of the session run. nil makes the runtime use one of its own.
	Stream unsafe.Pointer
	// DoubleArena doubles each growth of the arena. Without it the arena grows by what is
	// asked for and no more.
	DoubleArena bool
	// LimitBytes bounds the arena if it is not 0.
	LimitBytes uint64
	// ConvSearch is how cuDNN chooses the algorithm of a convolution.
	ConvSearch string
	// TF32 lets float32 products round their factors to 10 bits.
	TF32 bool
	// Graphs makes a session that programs may run as CUDA graphs: see Program.Graphs. The
	// runtime refuses it if an operator has no kernel for the GPU.
	Graphs bool
}

func (o *CUDAOptions) pairs() map[string]string {
	pairs := map[string]string{
		"device_id":             strconv.Itoa(o.Device),
		"use_tf32":              "0",
		"arena_extend_strategy": "kSameAsRequested",
	}
	if o.TF32 {
		pairs["use_tf32"] = "1"
	}
	if o.Graphs {
		pairs["enable_cuda_graph"] = "1"
	}
	if o.DoubleArena {
		pairs["arena_extend_strategy"] = "kNextPowerOfTwo"
	}
	if o.LimitBytes > 0 {
		pairs["gpu_mem_limit"] = strconv.FormatUint(o.LimitBytes, 10)
	}
	if o.ConvSearch != "" {
		pairs["cudnn_conv_algo_search"] = o.ConvSearch
	}
	return pairs
}

// needsCUDA returns ErrNoProvider for a library that has only these providers, none of
// them CUDA's.
func needsCUDA(path string, names []string) error {
	if slices.Contains(names, CUDAProvider) {
		return nil
	}
	return fmt.Errorf("%w: %s has %s, not %s; %s", ErrNoProvider, path, strings.Join(names, ", "), CUDAProvider, cudaRemedy)
}

// ProbeCUDA reports why sessions cannot run on the device: ErrNoProvider or
// ErrProvider. It loads the provider, which takes about a second, and may not
// find what only running a kernel does.
func (e *Env) ProbeCUDA(device int) error {
	if e.env == nil {
		return ErrClosed
	}
	options, err := e.sessionOptions(SessionOptions{CUDA: &CUDAOptions{Device: device}})
	if err == nil {
		C.ort_ReleaseSessionOptions(e.lib.api, options)
	}
	return err
}

// appendCUDA makes CUDA the first provider of the session.
func (e *Env) appendCUDA(options *C.OrtSessionOptions, o *CUDAOptions) error {
	l := e.lib
	names, err := l.Providers()
	if err == nil {
		err = needsCUDA(l.path, names)
	}
	if err != nil {
		return err
	}
	var cuda *C.OrtCUDAProviderOptionsV2
	if err := l.check(C.ort_CreateCUDAProviderOptions(l.api, &cuda)); err != nil {
		return providerError(err)
	}
	defer C.ort_ReleaseCUDAProviderOptions(l.api, cuda)
	keys, values, free := cStrings(o.pairs())
	defer free()
	err = l.check(C.ort_UpdateCUDAProviderOptions(l.api, cuda,
		unsafe.SliceData(keys), unsafe.SliceData(values), C.size_t(len(keys))))
	if err == nil && o.Stream != nil {
		key := C.CString("user_compute_stream")
		defer C.free(unsafe.Pointer(key))
		err = l.check(C.ort_UpdateCUDAProviderOptionsWithValue(l.api, cuda, key, o.Stream))
	}
	if err == nil {
		err = l.check(C.ort_SessionOptionsAppendExecutionProvider_CUDA_V2(l.api, options, cuda))
	}
	return providerError(err)
}

func providerError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w; %s", ErrProvider, err, cudaLibrariesRemedy)
}

// cStrings returns the keys and values of pairs in C memory, in the order of
// the keys.
func cStrings(pairs map[string]string) (keys, values []*C.char, free func()) {
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		keys, values = append(keys, C.CString(name)), append(values, C.CString(pairs[name]))
	}
	return keys, values, func() {
		for i := range keys {
			C.free(unsafe.Pointer(keys[i]))
			C.free(unsafe.Pointer(values[i]))
		}
	}
}

// RegisterCUDAArena makes one arena in the memory of a GPU that serves all
// sessions made later. It can be done once for each device.
func (e *Env) RegisterCUDAArena(o CUDAOptions) error {
	// The runtime ends the process when it is asked for an arena of a provider
	// that it cannot load.
	if err := e.ProbeCUDA(o.Device); err != nil {
		return err
	}
	return sharedArena{CUDAMemory, deviceAllocator, o.DoubleArena, o.LimitBytes}.register(e, o.Device)
}

// RegisterPinnedArena makes one arena in pinned memory of the host, after
// RegisterCUDAArena. There operators such as Concat pass tables to their kernels. The
// runtime gives that memory back in a callback of the stream, which ends the process if
// it is the last one to hold the arena. A session's own arena may be closed by then; this
// one is there until the Env is closed, before which the stream must have come to its end.
func (e *Env) RegisterPinnedArena(o CUDAOptions) error { return pinnedArena.register(e, o.Device) }

// sharedArena is an arena that serves all sessions on a GPU.
type sharedArena struct {
	memory     string // where it lies
	allocator  C.int
	doubles    bool   // each growth doubles the last one
	limitBytes uint64 // 0 for no limit
}

// pinnedArena must say that it is an arena: the runtime waits for the stream at the end of
// each run otherwise. Each growth stalls the GPU, and tables are small.
var pinnedArena = sharedArena{memory: pinnedMemory, allocator: arenaAllocator, doubles: true}

// register makes the arena.
func (a sharedArena) register(e *Env, device int) error {
	api := e.lib.api
	memory, err := memoryInfo(e.lib, a.memory, device, a.allocator)
	if err != nil {
		return err
	}
	defer C.ort_ReleaseMemoryInfo(api, memory)
	config, err := a.config(e.lib)
	if err != nil {
		return err
	}
	defer C.ort_ReleaseArenaCfg(api, config)
	provider := C.CString(CUDAProvider)
	defer C.free(unsafe.Pointer(provider))
	keys, values, free := cStrings(map[string]string{"device_id": strconv.Itoa(device)})
	defer free()
	return providerError(e.lib.check(C.ort_CreateAndRegisterAllocatorV2(api, e.env, provider, memory, config,
		unsafe.SliceData(keys), unsafe.SliceData(values), C.size_t(len(keys)))))
}
