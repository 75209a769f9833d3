package ort

/*
#include "abi.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strconv"
	"unsafe"
)

// ElementType is the type of a tensor's elements. The numbers up to BFloat16
// are those of ONNX (TensorProto.DataType) too.
type ElementType int32

// The element types of ONNX Runtime.
const (
	Undefined ElementType = iota
	Float32
	Uint8
	Int8
	Uint16
	Int16
	Int32
	Int64
	String
	Bool
	Float16
	Float64
	Uint32
	Uint64
	Complex64
	Complex128
	BFloat16
	Float8E4M3FN
	Float8E4M3FNUZ
	Float8E5M2
	Float8E5M2FNUZ
	Uint4
	Int4
	Float4E2M1
	Uint2
	Int2
)

var elementNames = [...]string{
	"undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool",
	"float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16",
	"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1",
	"uint2", "int2",
}

func (t ElementType) String() string {
	if t < 0 || int(t) >= len(elementNames) {
		return "type " + strconv.Itoa(int(t))
	}
	return elementNames[t]
}

// Kind is what sort of value a Value or TypeInfo is, numbered as in ONNX
// Runtime.
type Kind int32

// The kinds of value. A value that is an empty optional has KindUnknown.
const (
	KindUnknown Kind = iota
	KindTensor
	KindSequence
	KindMap
	KindOpaque
	KindSparseTensor
	KindOptional
)

var kindNames = [...]string{"unknown", "tensor", "sequence", "map", "opaque", "sparse tensor", "optional"}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// TypeInfo is an input or output of a session: its name, and its type as far as
// the model declares it. A tensor has Elem and Dims, -1 where a dimension is open;
// a map has Key; a map, a sequence and an optional have Item, the type of what is
// in them, which has no name.
type TypeInfo struct {
	Name string
	Kind Kind
	Elem ElementType
	Dims []int64
	Key  ElementType
	Item *TypeInfo
}

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

// itemType returns the type inside t, which the caller releases, and sets the
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
	var n C.size_t
	if err := l.check(C.ort_GetDimensionsCount(l.api, tensor, &n)); err != nil || n == 0 {
		return err
	}
	info.Dims = make([]int64, n)
	return l.check(C.ort_GetDimensions(l.api, tensor, (*C.int64_t)(unsafe.SliceData(info.Dims)), n))
}

// readInfo fills info from what two calls gave and said. It releases t.
func (l *Library) readInfo(info *TypeInfo, nameStatus, typeStatus *C.OrtStatus, name *C.char, t *C.OrtTypeInfo) error {
	err := errors.Join(l.check(nameStatus), l.check(typeStatus))
	if t != nil {
		var typeErr error
		*info, typeErr = l.typeInfo(t, 0)
		err = errors.Join(err, typeErr)
	}
	info.Name = C.GoString(name)
	return err
}
