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

// CUDAProvider is the name of the execution provider for NVIDIA GPUs.
const CUDAProvider = "CUDAExecutionProvider"

const (
	cudaRemedy = "use libonnxruntime from the PyPI package onnxruntime-gpu " + PinnedCUDAVersion +
		" for CUDA 13 and set " + PathVariable + " to it"
	cudaLibrariesRemedy = "its libonnxruntime_providers_cuda.so and libonnxruntime_providers_shared.so must be in the folder of " +
		"libonnxruntime.so.1, and the driver's libcuda.so.1, cuDNN 9 and CUDA's cuBLAS, cuFFT, cuRAND and runtime must be found " +
		"through LD_LIBRARY_PATH or ldconfig"
)

// ConvHeuristic is the value of CUDAOptions.ConvSearch that asks cuDNN for an estimate. The
// other values are EXHAUSTIVE, the runtime's default, which times all algorithms once for
// each shape, and DEFAULT, which always selects the same algorithm.
const ConvHeuristic = "HEURISTIC"

// CUDAOptions configures the CUDA execution provider of a session. The zero value keeps the
// runtime's defaults, except that the arena grows by exactly what is needed and TF32 is off, for the same
// precision as on the CPU.
type CUDAOptions struct {
	// Device is the number of the GPU in the order of CUDA_VISIBLE_DEVICES.
	Device int
	// Stream is a CUstream of the device's primary context, on which all kernels of the
	// session run. With nil the runtime uses a stream of its own.
	Stream unsafe.Pointer
	// LimitBytes limits the arena, 0 for no limit.
	LimitBytes uint64
	// ConvSearch selects how cuDNN chooses the algorithm of a convolution.
	ConvSearch string
	// TF32 allows float32 matrix products and convolutions to round their factors to a
	// mantissa of 10 bits.
	TF32 bool
	// Graphs makes a session that programs can run as CUDA graphs; see Program.Graphs. The
	// runtime rejects the session if an operator has no kernel for the GPU.
	Graphs bool
}

// pairs returns the options as the provider's configuration.
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
	if o.LimitBytes > 0 {
		pairs["gpu_mem_limit"] = strconv.FormatUint(o.LimitBytes, 10)
	}
	if o.ConvSearch != "" {
		pairs["cudnn_conv_algo_search"] = o.ConvSearch
	}
	return pairs
}

// needsCUDA returns ErrNoProvider unless the library's providers include CUDA.
func needsCUDA(path string, names []string) error {
	if slices.Contains(names, CUDAProvider) {
		return nil
	}
	return fmt.Errorf("%w: %s has %s, not %s; %s", ErrNoProvider, path, strings.Join(names, ", "), CUDAProvider, cudaRemedy)
}

// ProbeCUDA returns ErrNoProvider or ErrProvider if sessions cannot run on the device. It
// loads the provider, which takes about a second. It does not find faults that only running
// a kernel reveals.
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

// appendCUDA makes CUDA the session's first provider.
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

// cStrings returns the keys and values of pairs in C memory, sorted by key, and a function
// that frees them.
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

// RegisterCUDAArena creates an arena in the memory of a GPU, which all sessions created
// later share. It can be called once for each device.
func (e *Env) RegisterCUDAArena(o CUDAOptions) error {
	// The runtime ends the process if it cannot load the provider of an arena, so try
	// that first.
	if err := e.ProbeCUDA(o.Device); err != nil {
		return err
	}
	return sharedArena{CUDAMemory, deviceAllocator, false, o.LimitBytes}.register(e, o.Device)
}

// RegisterPinnedArena creates an arena in pinned host memory, after RegisterCUDAArena.
// Operators such as Concat pass tables to their kernels through it.
//
// The runtime frees that memory in a callback of the stream. If the callback holds the last
// reference to the arena, the process ends. A session's own arena may be closed by then, so
// this shared one, which lives until the Env is closed, is required. The stream must be
// synchronized before that.
func (e *Env) RegisterPinnedArena(o CUDAOptions) error { return pinnedArena.register(e, o.Device) }

// sharedArena is an arena that all sessions on a GPU share.
type sharedArena struct {
	// memory is the name of the memory in which it lies.
	memory    string
	allocator C.int

	// doubles makes each growth double the last one.
	doubles bool

	// limitBytes is 0 for no limit.
	limitBytes uint64
}

// pinnedArena must be declared as an arena, because the runtime otherwise waits for the
// stream at the end of each run. It doubles, because each growth stalls the GPU and tables
// are small.
var pinnedArena = sharedArena{memory: pinnedMemory, allocator: arenaAllocator, doubles: true}

// register creates the arena and registers it with the Env.
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
