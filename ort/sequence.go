package ort

/*
#include "abi.h"
*/
import "C"

import "unsafe"

// Sequence returns a sequence of the values, which share their memory with it
// and may be closed. The runtime's C ABI cannot make an empty one.
func (e *Env) Sequence(items []*Value) (*Value, error) {
	if e.env == nil {
		return nil, ErrClosed
	}
	for _, item := range items {
		if item == nil || !item.HasValue() {
			return nil, ErrNoValue
		}
	}
	in := pointers(items)
	var v *C.OrtValue
	err := e.lib.check(C.ort_CreateValue(e.lib.api, unsafe.SliceData(in), C.size_t(len(in)),
		C.int(KindSequence), &v))
	if err != nil {
		return nil, err
	}
	return e.adopt(v), nil
}

// Items returns the items of a sequence, or the keys and the values of a map.
// They are new values and the caller's.
func (v *Value) Items() ([]*Value, error) {
	if !v.HasValue() {
		return nil, ErrNoValue
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
