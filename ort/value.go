package ort

/*
#include <stdlib.h>
#include "arena.h"

// A tensor without bytes still needs an address.
static char overlapd_nothing[1];
static void *nothing(void) { return overlapd_nothing; }

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

	"github.com/overlapd/overlapd/models"
)

// Value is a tensor, a sequence, a map or an optional that a session takes or returns.
type Value struct {
	env   *Env
	value *C.OrtValue

	// borrowed is set if the value belongs to a Program, which releases it.
	borrowed bool
}

// TensorOn returns a tensor whose elements are data, in row-major order. data must not
// move, and must outlive the value and everything that shares it. It may be mapped or C
// memory, or Go memory that stays pinned (runtime.Pinner) for that time. It must be aligned
// for elem. data may be longer than the shape needs, and empty if the shape has no
// elements.
func (e *Env) TensorOn(data []byte, elem models.DataType, shape []int64) (*Value, error) {
	if err := checkFlat(elem); err != nil {
		return nil, err
	}
	p := C.nothing()
	if len(data) > 0 {
		p = unsafe.Pointer(unsafe.SliceData(data))
	}
	return e.newValue(func(v **C.OrtValue) *C.OrtStatus {
		return C.ort_CreateTensorWithDataAsOrtValue(e.lib.api, e.memory, p, C.size_t(len(data)),
			(*C.int64_t)(unsafe.SliceData(shape)), C.size_t(len(shape)), C.int(elem), v)
	})
}

// checkFlat returns an error for strings, which are objects in the runtime's memory.
func checkFlat(elem models.DataType) error {
	if elem == models.String {
		return fmt.Errorf("ort: strings do not lie in flat memory; use StringTensor")
	}
	return nil
}

// NewTensor returns a tensor in the arena. Its elements are not initialized, except that
// strings are empty.
func (e *Env) NewTensor(elem models.DataType, shape []int64) (*Value, error) {
	return e.newValue(func(v **C.OrtValue) *C.OrtStatus {
		return C.ort_CreateTensorAsOrtValue(e.lib.api, &e.arena.allocator,
			(*C.int64_t)(unsafe.SliceData(shape)), C.size_t(len(shape)), C.int(elem), v)
	})
}

func (e *Env) newValue(create func(v **C.OrtValue) *C.OrtStatus) (*Value, error) {
	if e.env == nil {
		return nil, ErrClosed
	}
	var v *C.OrtValue
	refused := e.refusals()
	if err := e.ran(create(&v), refused); err != nil {
		return nil, err
	}
	return e.adopt(v), nil
}

// adopt returns a Value that owns v.
func (e *Env) adopt(v *C.OrtValue) *Value {
	e.open.values.Add(1)
	return &Value{env: e, value: v}
}

// Kind returns the kind of the value, KindUnknown if there is none.
func (v *Value) Kind() models.Kind {
	var kind C.int
	if v.HasValue() { // the runtime crashes if asked about an empty optional
		_ = v.env.lib.check(C.ort_GetValueType(v.env.lib.api, v.value, &kind)) // on failure the kind stays unknown
	}
	return kindOf(kind)
}

// HasValue returns false for an empty optional, and after Close.
func (v *Value) HasValue() bool {
	if v.value == nil {
		return false
	}
	var has C.int
	err := v.env.lib.check(C.ort_HasValue(v.env.lib.api, v.value, &has))
	return err == nil && has != 0
}

// IsTensor reports whether the value is a dense tensor.
func (v *Value) IsTensor() bool { return v.Kind() == models.KindTensor }

// Elem returns the element type of a tensor, or models.Undefined for other values.
func (v *Value) Elem() models.DataType {
	elem, _ := v.tensor()
	return elem
}

// Shape returns a copy of the shape of a tensor, or nil for other values. The shape of a
// scalar is empty but not nil.
func (v *Value) Shape() []int64 {
	_, shape := v.tensor()
	return shape
}

func (v *Value) tensor() (models.DataType, []int64) {
	if !v.IsTensor() {
		return models.Undefined, nil
	}
	var elem C.int
	var dims *C.int64_t
	var n C.size_t
	err := v.env.lib.check(C.ort_GetTensorElementTypeAndShapeDataReference(v.env.lib.api, v.value, &elem, &dims, &n))
	if err != nil {
		return models.Undefined, nil
	}
	shape := make([]int64, n)
	copy(shape, unsafe.Slice((*int64)(dims), n))
	return models.DataType(elem), shape
}

// Bytes returns the elements of a tensor without copying them. The slice is valid until
// the value is closed. A tensor of strings has no bytes.
func (v *Value) Bytes() ([]byte, error) {
	if !v.HasValue() {
		return nil, errNoValue
	}
	var n C.size_t
	if err := v.env.lib.check(C.ort_GetTensorSizeInBytes(v.env.lib.api, v.value, &n)); err != nil {
		return nil, err
	}
	var p unsafe.Pointer
	if err := v.env.lib.check(C.ort_GetTensorMutableData(v.env.lib.api, v.value, &p)); err != nil {
		return nil, err
	}
	if p == nil {
		p = C.nothing()
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// pointers returns the C pointers of the values, nil for a nil value.
func pointers(values []*Value) []*C.OrtValue {
	p := make([]*C.OrtValue, len(values))
	for i, v := range values {
		p[i] = v.pointer()
	}
	return p
}

func (v *Value) pointer() *C.OrtValue {
	if v == nil {
		return nil
	}
	return v.value
}

// Close releases the value. If a Program lent it, Close only invalidates this handle.
func (v *Value) Close() error {
	if v.value == nil {
		return ErrClosed
	}
	if !v.borrowed {
		C.ort_ReleaseValue(v.env.lib.api, v.value)
		v.env.open.values.Add(-1)
	}
	v.value = nil
	return nil
}

// Sequence returns a sequence of the values. It shares their memory, and they may be closed
// afterwards. The runtime's C ABI cannot create an empty sequence.
func (e *Env) Sequence(items []*Value) (*Value, error) {
	for _, item := range items {
		if item == nil || !item.HasValue() {
			return nil, errNoValue
		}
	}
	in := pointers(items)
	return e.newValue(func(v **C.OrtValue) *C.OrtStatus {
		return C.ort_CreateValue(e.lib.api, unsafe.SliceData(in), C.size_t(len(in)), sequence, v)
	})
}

// Items returns the items of a sequence, or the keys and the values of a map, as new values
// that the caller must close.
func (v *Value) Items() ([]*Value, error) {
	if !v.HasValue() {
		return nil, errNoValue
	}
	var n C.size_t
	if err := v.env.lib.check(C.ort_GetValueCount(v.env.lib.api, v.value, &n)); err != nil {
		return nil, err
	}
	items := make([]*Value, 0, n)
	for i := range C.int(n) {
		var item *C.OrtValue
		err := v.env.lib.check(C.ort_GetValue(v.env.lib.api, v.value, i, v.env.allocator, &item))
		if err != nil {
			for _, item := range items {
				_ = item.Close()
			}
			return nil, err
		}
		items = append(items, v.env.adopt(item))
	}
	return items, nil
}

// StringTensor returns a tensor with copies of the strings, which may contain any bytes.
func (e *Env) StringTensor(values [][]byte, shape []int64) (*Value, error) {
	if n := elements(shape); n != len(values) {
		return nil, fmt.Errorf("ort: %d strings given for shape %v", len(values), shape)
	}
	v, err := e.NewTensor(models.String, shape)
	if err != nil {
		return nil, err
	}
	for i, s := range values {
		var buffer *C.char
		err := e.lib.check(C.ort_GetResizedStringTensorElementBuffer(
			e.lib.api, v.value, C.size_t(i), C.size_t(len(s)), &buffer))
		if err != nil {
			_ = v.Close()
			return nil, err
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(buffer)), len(s)), s)
	}
	return v, nil
}

// elements returns the number of elements of a shape, or -1 if the shape is invalid or has
// 2^31 or more.
func elements(shape []int64) int {
	const limit = 1 << 31
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d >= limit || n*d >= limit {
			return -1
		}
		n *= d
	}
	return int(n)
}

// Strings returns copies of the elements of a tensor of strings. They share one buffer.
func (v *Value) Strings() ([][]byte, error) {
	elem, shape := v.tensor()
	if elem != models.String {
		return nil, fmt.Errorf("ort: a value of %s holds no strings", elem)
	}
	n := elements(shape)
	if n <= 0 {
		return nil, nil
	}
	lib := v.env.lib
	var length C.size_t
	if err := lib.check(C.ort_GetStringTensorDataLength(lib.api, v.value, &length)); err != nil {
		return nil, err
	}
	text := make([]byte, length+1) // one byte more, so that an empty buffer has an address
	offsets := make([]C.size_t, n)
	err := lib.check(C.ort_GetStringTensorContent(lib.api, v.value, unsafe.Pointer(&text[0]), length,
		&offsets[0], C.size_t(n)))
	if err != nil {
		return nil, err
	}
	values := make([][]byte, n)
	end := length
	for i := n - 1; i >= 0; i-- {
		values[i] = text[offsets[i]:end:end]
		end = offsets[i]
	}
	return values, nil
}

// Names of memory in ONNX Runtime. pinnedMemory is host memory that a GPU can access
// directly at any time.
const (
	CPUMemory    = "Cpu"
	CUDAMemory   = "Cuda"
	pinnedMemory = "CudaPinned"
)

// Memory identifies where tensors may lie: in the host's memory, or in that of a GPU.
type Memory struct {
	env  *Env
	info *C.OrtMemoryInfo
}

// NewMemory returns the memory with a name on a device. It need not exist until a tensor in
// it is used.
func (e *Env) NewMemory(name string, device int) (*Memory, error) {
	if e.env == nil {
		return nil, ErrClosed
	}
	info, err := memoryInfo(e.lib, name, device, deviceAllocator)
	if err != nil {
		return nil, err
	}
	e.open.memories.Add(1)
	return &Memory{env: e, info: info}, nil
}

// memoryInfo returns the runtime's description of memory. The caller releases it.
func memoryInfo(l *Library, name string, device int, allocator C.int) (info *C.OrtMemoryInfo, err error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	err = l.check(C.ort_CreateMemoryInfo(l.api, c, allocator, C.int(device), defaultMemory, &info))
	return info, err
}

// Close releases the description, not the memory. Tensors that lie there remain valid.
func (m *Memory) Close() error {
	if m.info == nil {
		return ErrClosed
	}
	C.ort_ReleaseMemoryInfo(m.env.lib.api, m.info)
	m.info = nil
	m.env.open.memories.Add(-1)
	return nil
}

// TensorAt returns a tensor whose elements lie at an address of m, in row-major order, in
// the given number of bytes. That memory must outlive the value and everything that shares
// it. Bytes must not be called on a tensor that the host cannot read.
func (e *Env) TensorAt(m *Memory, address uint64, bytes int64, elem models.DataType, shape []int64) (*Value, error) {
	if m.info == nil {
		return nil, ErrClosed
	}
	if err := checkFlat(elem); err != nil {
		return nil, err
	}
	return e.newValue(func(v **C.OrtValue) *C.OrtStatus {
		return C.overlapd_tensor_at(e.lib.api, m.info, C.uint64_t(address), C.size_t(bytes),
			(*C.int64_t)(unsafe.SliceData(shape)), C.size_t(len(shape)), C.int(elem), v)
	})
}

// Address returns the address of a tensor's first element, in whatever memory it lies.
func (v *Value) Address() (uint64, error) {
	if !v.HasValue() {
		return 0, errNoValue
	}
	var address C.uint64_t
	err := v.env.lib.check(C.overlapd_address_of(v.env.lib.api, v.value, &address))
	return uint64(address), err
}
