package ort

/*
#include "abi.h"
*/
import "C"

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// kinds maps ONNX Runtime's numbers of value kinds. Element types have the same numbers as
// in ONNX.
var kinds = [...]models.Kind{1: models.KindTensor, 2: models.KindSequence, 3: models.KindMap, 5: models.KindSparseTensor, 6: models.KindOptional}

// sequence is ONNX_TYPE_SEQUENCE.
const sequence = 2

func kindOf(number C.int) models.Kind {
	if number < 0 || int(number) >= len(kinds) {
		return models.KindUnknown
	}
	return kinds[number]
}

// TypeInfo is an input or output of a session: its name, and its type as far as the model
// declares it or the runtime infers it. The shape of a tensor is only in Dims, not in Type.
// Sessions of a part of a model have no declared shapes.
type TypeInfo struct {
	Name string
	models.Type
	Dims []models.Dim
}

// maxTypeDepth limits how deep sequences, optionals and maps may nest.
const maxTypeDepth = 16

// typeInfo converts t, and releases it.
func (l *Library) typeInfo(t *C.OrtTypeInfo, depth int) (info TypeInfo, err error) {
	defer C.ort_ReleaseTypeInfo(l.api, t)
	if depth > maxTypeDepth {
		return info, fmt.Errorf("ort: a type nests deeper than %d", maxTypeDepth)
	}
	var kind C.int
	if err := l.check(C.ort_GetOnnxTypeFromTypeInfo(l.api, t, &kind)); err != nil {
		return info, err
	}
	info.Kind = kindOf(kind)
	switch info.Kind {
	case models.KindTensor, models.KindSparseTensor:
		err := l.tensorInfo(t, &info)
		return info, err
	case models.KindSequence, models.KindOptional, models.KindMap:
		item, err := l.itemType(t, &info)
		if err != nil {
			return info, err
		}
		inner, err := l.typeInfo(item, depth+1)
		info.Item = &inner.Type
		return info, err
	}
	return info, nil
}

// itemType returns the type inside t, which the caller releases, and sets the key type of a
// map. The casts return pointers into t, which need no release.
func (l *Library) itemType(t *C.OrtTypeInfo, info *TypeInfo) (item *C.OrtTypeInfo, err error) {
	switch info.Kind {
	case models.KindSequence:
		var sequence *C.OrtSequenceTypeInfo
		if err = l.check(C.ort_CastTypeInfoToSequenceTypeInfo(l.api, t, &sequence)); err == nil {
			err = l.check(C.ort_GetSequenceElementType(l.api, sequence, &item))
		}
	case models.KindOptional:
		var optional *C.OrtOptionalTypeInfo
		if err = l.check(C.ort_CastTypeInfoToOptionalTypeInfo(l.api, t, &optional)); err == nil {
			err = l.check(C.ort_GetOptionalContainedTypeInfo(l.api, optional, &item))
		}
	default:
		var m *C.OrtMapTypeInfo
		var key C.int
		if err = l.check(C.ort_CastTypeInfoToMapTypeInfo(l.api, t, &m)); err == nil {
			err = l.check(C.ort_GetMapKeyType(l.api, m, &key))
		}
		if info.Key = models.DataType(key); err == nil {
			err = l.check(C.ort_GetMapValueType(l.api, m, &item))
		}
	}
	return item, err
}

// tensorInfo reads the element type and the dimensions of a tensor.
func (l *Library) tensorInfo(t *C.OrtTypeInfo, info *TypeInfo) error {
	var tensor *C.OrtTensorTypeAndShapeInfo
	if err := l.check(C.ort_CastTypeInfoToTensorInfo(l.api, t, &tensor)); err != nil || tensor == nil {
		return err
	}
	var elem C.int
	if err := l.check(C.ort_GetTensorElementType(l.api, tensor, &elem)); err != nil {
		return err
	}
	info.Elem = models.DataType(elem)
	var n C.size_t
	if err := l.check(C.ort_GetDimensionsCount(l.api, tensor, &n)); err != nil || n == 0 {
		return err
	}
	sizes, names := make([]C.int64_t, n), make([]*C.char, n)
	err := l.check(C.ort_GetDimensions(l.api, tensor, &sizes[0], n))
	if err == nil {
		err = l.check(C.ort_GetSymbolicDimensions(l.api, tensor, &names[0], n))
	}
	for i := range sizes {
		info.Dims = append(info.Dims, models.Dim{Value: int64(sizes[i]), Name: C.GoString(names[i])})
	}
	return err
}

// readInfo fills info with the results of the calls for a name and a type. It releases t.
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
