package ort

import "strconv"

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

// Kind tells what sort of value a Value or TypeInfo is, numbered as in ONNX
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

// TypeInfo is the type of an input or output, as far as the model tells.
type TypeInfo struct {
	Kind     Kind
	Elem     ElementType // of a tensor
	HasShape bool        // false if even the rank of the tensor is open
	Dims     []int64     // of a tensor, -1 where a dimension is open
	Symbols  []string    // the names of open dimensions, "" for the others
	Key      ElementType // of a map
	Item     *TypeInfo   // of a sequence, an optional or the values of a map
}

// Info is the name and type of an input or output of a Session.
type Info struct {
	Name string
	Type TypeInfo
}
