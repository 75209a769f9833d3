package ort

/*
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// maxTypeDepth bounds how deep sequences, optionals and maps may nest.
const maxTypeDepth = 16

// typeInfo reads t, which it releases.
func (l *Library) typeInfo(t *C.OrtTypeInfo, depth int) (TypeInfo, error) {
	defer C.ort_ReleaseTypeInfo(l.api, t)
	var info TypeInfo
	if depth > maxTypeDepth {
		return info, fmt.Errorf("ort: a type nests deeper than %d", maxTypeDepth)
	}
	var kind C.int
	if err := l.check(C.ort_GetOnnxTypeFromTypeInfo(l.api, t, &kind)); err != nil {
		return info, err
	}
	info.Kind = Kind(kind)
	switch info.Kind {
	case KindTensor, KindSparseTensor:
		err := l.tensorInfo(t, &info)
		return info, err
	case KindSequence, KindOptional, KindMap:
		item, err := l.itemType(t, &info)
		if err != nil {
			return info, err
		}
		inner, err := l.typeInfo(item, depth+1)
		info.Item = &inner
		return info, err
	}
	return info, nil
}

// itemType returns the type inside t, which the caller releases, and notes the
// key type of a map.
func (l *Library) itemType(t *C.OrtTypeInfo, info *TypeInfo) (*C.OrtTypeInfo, error) {
	var item *C.OrtTypeInfo
	switch info.Kind {
	case KindSequence:
		var sequence *C.OrtSequenceTypeInfo
		if err := l.check(C.ort_CastTypeInfoToSequenceTypeInfo(l.api, t, &sequence)); err != nil {
			return nil, err
		}
		err := l.check(C.ort_GetSequenceElementType(l.api, sequence, &item))
		return item, err
	case KindOptional:
		var optional *C.OrtOptionalTypeInfo
		if err := l.check(C.ort_CastTypeInfoToOptionalTypeInfo(l.api, t, &optional)); err != nil {
			return nil, err
		}
		err := l.check(C.ort_GetOptionalContainedTypeInfo(l.api, optional, &item))
		return item, err
	}
	var m *C.OrtMapTypeInfo
	if err := l.check(C.ort_CastTypeInfoToMapTypeInfo(l.api, t, &m)); err != nil {
		return nil, err
	}
	var key C.int
	if err := l.check(C.ort_GetMapKeyType(l.api, m, &key)); err != nil {
		return nil, err
	}
	info.Key = ElementType(key)
	err := l.check(C.ort_GetMapValueType(l.api, m, &item))
	return item, err
}

func (l *Library) tensorInfo(t *C.OrtTypeInfo, info *TypeInfo) error {
	var tensor *C.OrtTensorTypeAndShapeInfo
	if err := l.check(C.ort_CastTypeInfoToTensorInfo(l.api, t, &tensor)); err != nil || tensor == nil {
		return err
	}
	var elem C.int
	if err := l.check(C.ort_GetTensorElementType(l.api, tensor, &elem)); err != nil {
		return err
	}
	info.Elem = ElementType(elem)
	info.HasShape = bool(C.ort_TensorTypeAndShape_HasShape(l.api, tensor))
	var n C.size_t
	if err := l.check(C.ort_GetDimensionsCount(l.api, tensor, &n)); err != nil || n == 0 {
		return err
	}
	info.Dims = make([]int64, n)
	if err := l.check(C.ort_GetDimensions(l.api, tensor, (*C.int64_t)(unsafe.SliceData(info.Dims)), n)); err != nil {
		return err
	}
	names := make([]*C.char, n)
	if err := l.check(C.ort_GetSymbolicDimensions(l.api, tensor, unsafe.SliceData(names), n)); err != nil {
		return err
	}
	info.Symbols = make([]string, n)
	for i, name := range names {
		info.Symbols[i] = C.GoString(name)
	}
	return nil
}
