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

// kinds are those of a value, as ONNX Runtime numbers them. Element types have
// ONNX's numbers there, too.
var kinds = [...]models.Kind{1: models.KindTensor, 2: models.KindSequence, 3: models.KindMap, 5: models.KindSparseTensor, 6: models.KindOptional}

const sequence = 2

func kindOf(number C.int) models.Kind {
	if number < 0 || int(number) >= len(kinds) {
		return models.KindUnknown
	}
	return kinds[number]
}

// TypeInfo is an input or output of a session: its name, and its type as far as
// the model declares it or the runtime infers it. The shape of a tensor is in Dims only:
// sessions of one piece of a model are told of no shapes.
type TypeInfo struct {
	Name string
	models.Type
	Dims []models.Dim
}

// maxTypeDepth bounds how deep sequences, optionals and maps may nest.
const maxTypeDepth = 16

// typeInfo reads t, which it releases.
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

// itemType returns the type inside t, which the caller releases, and sets the
// key type of a map.
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
