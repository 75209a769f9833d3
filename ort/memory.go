package ort

/*
#include <stdlib.h>
#include "abi.h"

// An address of a GPU's memory is a number to Go, which could take it for a
// pointer of its own otherwise.
static OrtStatus *overlapd_tensor_at(ort_table t, const OrtMemoryInfo *memory, uint64_t address, size_t bytes,
                                     const int64_t *shape, size_t rank, int elem, OrtValue **v) {
	return ort_CreateTensorWithDataAsOrtValue(t, memory, (void *)(uintptr_t)address, bytes, shape, rank, elem, v);
}
static OrtStatus *overlapd_address_of(ort_table t, OrtValue *v, uint64_t *address) {
	void *p = NULL;
	OrtStatus *status = ort_GetTensorMutableData(t, v, &p);

	*address = (uint64_t)(uintptr_t)p;
	return status;
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Names of memory.
const (
	CPUMemory  = "Cpu"
	CUDAMemory = "Cuda"
)

// Memory is where tensors may lie: the host's memory, or that of a GPU.
type Memory struct {
	env  *Env
	info *C.OrtMemoryInfo
}

// NewMemory returns the memory with that name of the device with that number.
// It need not be there as long as no tensor is used.
func (e *Env) NewMemory(name string, device int) (*Memory, error) {
	if e.env == nil {
		return nil, ErrClosed
	}
	const deviceAllocator = 0
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	m := &Memory{env: e}
	err := e.lib.check(C.ort_CreateMemoryInfo(e.lib.api, c, deviceAllocator, C.int(device), defaultMemory, &m.info))
	if err != nil {
		return nil, err
	}
	e.open.memories.Add(1)
	return m, nil
}

// Close gives the memory's name back, not the memory. Tensors that lie there
// may stay.
func (m *Memory) Close() error {
	if m.info == nil {
		return ErrClosed
	}
	C.ort_ReleaseMemoryInfo(m.env.lib.api, m.info)
	m.info = nil
	m.env.open.memories.Add(-1)
	return nil
}

// MemoryInfo describes where something lies.
type MemoryInfo struct {
	Name   string // such as CPUMemory or CUDAMemory
	Device int    // its number among those of its kind
	Host   bool   // whether the host can read it
}

func (l *Library) memoryInfo(info *C.OrtMemoryInfo) (MemoryInfo, error) {
	var name *C.char
	var device, kind C.int
	if err := l.check(C.ort_MemoryInfoGetName(l.api, info, &name)); err != nil {
		return MemoryInfo{}, err
	}
	if err := l.check(C.ort_MemoryInfoGetId(l.api, info, &device)); err != nil {
		return MemoryInfo{}, err
	}
	C.ort_MemoryInfoGetDeviceType(l.api, info, &kind)
	const cpu, deviceOnly = 0, 0
	return MemoryInfo{
		Name: C.GoString(name), Device: int(device),
		// The host's memory that is pinned for a GPU is reported as the GPU's.
		Host: kind == cpu || C.ort_MemoryInfoGetDeviceMemType(l.api, info) != deviceOnly,
	}, nil
}

// Memory returns where a tensor lies.
func (v *Value) Memory() (MemoryInfo, error) {
	if !v.HasValue() {
		return MemoryInfo{}, ErrNoValue
	}
	var info *C.OrtMemoryInfo
	if err := v.env.lib.check(C.ort_GetTensorMemoryInfo(v.env.lib.api, v.value, &info)); err != nil {
		return MemoryInfo{}, err
	}
	return v.env.lib.memoryInfo(info)
}

// InputMemory returns where the session takes each of its inputs from without
// copying it.
func (s *Session) InputMemory() ([]MemoryInfo, error) {
	return s.memories(len(s.inputs), func(info **C.OrtMemoryInfo, n C.size_t) *C.OrtStatus {
		return C.ort_SessionGetMemoryInfoForInputs(s.env.lib.api, s.session, info, n)
	})
}

// OutputMemory returns where the session makes each of its outputs.
func (s *Session) OutputMemory() ([]MemoryInfo, error) {
	return s.memories(len(s.outputs), func(info **C.OrtMemoryInfo, n C.size_t) *C.OrtStatus {
		return C.ort_SessionGetMemoryInfoForOutputs(s.env.lib.api, s.session, info, n)
	})
}

func (s *Session) memories(n int, get func(**C.OrtMemoryInfo, C.size_t) *C.OrtStatus) ([]MemoryInfo, error) {
	if s.session == nil {
		return nil, ErrClosed
	}
	if n == 0 {
		return nil, nil
	}
	infos := make([]*C.OrtMemoryInfo, n)
	if err := s.env.lib.check(get(unsafe.SliceData(infos), C.size_t(n))); err != nil {
		return nil, err
	}
	all := make([]MemoryInfo, n)
	for i, info := range infos {
		if info == nil {
			return nil, fmt.Errorf("ort: %s: ONNX Runtime does not tell where value %d lies", s.name, i)
		}
		var err error
		if all[i], err = s.env.lib.memoryInfo(info); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// TensorAt returns a tensor whose elements lie at an address of m, row by row,
// in so many bytes. They must outlive the value and all that shares it. Neither
// Bytes nor Data is for a tensor that the host cannot read.
func (e *Env) TensorAt(m *Memory, address uint64, bytes int64, elem ElementType, shape []int64) (*Value, error) {
	if e.env == nil || m.info == nil {
		return nil, ErrClosed
	}
	if elem == String {
		return nil, fmt.Errorf("ort: strings do not lie in flat memory; use StringTensor")
	}
	var v *C.OrtValue
	err := e.lib.check(C.overlapd_tensor_at(e.lib.api, m.info, C.uint64_t(address), C.size_t(bytes),
		(*C.int64_t)(unsafe.SliceData(shape)), C.size_t(len(shape)), C.int(elem), &v))
	if err != nil {
		return nil, err
	}
	return e.adopt(v), nil
}

// Address returns where the elements of a tensor begin, in whatever memory they
// lie.
func (v *Value) Address() (uint64, error) {
	if !v.HasValue() {
		return 0, ErrNoValue
	}
	var address C.uint64_t
	err := v.env.lib.check(C.overlapd_address_of(v.env.lib.api, v.value, &address))
	return uint64(address), err
}
