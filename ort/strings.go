package ort

/*
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// StringTensor returns a tensor of strings, which it copies. They may hold any
// bytes.
func (e *Env) StringTensor(values [][]byte, shape []int64) (*Value, error) {
	if n := elements(shape); n != len(values) {
		return nil, fmt.Errorf("ort: %d strings given for shape %v", len(values), shape)
	}
	v, err := e.NewTensor(String, shape)
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

// elements returns the number of elements of a small shape, -1 for one that is
// not a shape.
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

// Strings returns the elements of a tensor of strings. They are copies, but
// share one buffer.
func (v *Value) Strings() ([][]byte, error) {
	elem, shape := v.tensor()
	if elem != String {
		return nil, fmt.Errorf("ort: a %s of %s holds no strings", v.Kind(), elem)
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
	text := make([]byte, length+1) // one more, so that it has an address
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
