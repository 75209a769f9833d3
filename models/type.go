package models

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// DataType is the element type of a tensor, numbered as in ONNX
// (TensorProto.DataType).
type DataType int32

// The element types that overlapd knows by name.
const (
	Undefined  DataType = 0
	Float32    DataType = 1
	Uint8      DataType = 2
	Int8       DataType = 3
	Uint16     DataType = 4
	Int16      DataType = 5
	Int32      DataType = 6
	Int64      DataType = 7
	String     DataType = 8
	Bool       DataType = 9
	Float16    DataType = 10
	Float64    DataType = 11
	Uint32     DataType = 12
	Uint64     DataType = 13
	Complex64  DataType = 14
	Complex128 DataType = 15
	BFloat16   DataType = 16
)

var dataTypes = [...]struct {
	name string
	// wire is the name in the Open Inference Protocol, or "" if it has none.
	wire string
	// bytes is the size of one element, or 0 if it varies or is smaller than a byte.
	bytes int
}{
	Undefined:  {"undefined", "", 0},
	Float32:    {"float32", "FP32", 4},
	Uint8:      {"uint8", "UINT8", 1},
	Int8:       {"int8", "INT8", 1},
	Uint16:     {"uint16", "UINT16", 2},
	Int16:      {"int16", "INT16", 2},
	Int32:      {"int32", "INT32", 4},
	Int64:      {"int64", "INT64", 8},
	String:     {"string", "BYTES", 0},
	Bool:       {"bool", "BOOL", 1},
	Float16:    {"float16", "FP16", 2},
	Float64:    {"float64", "FP64", 8},
	Uint32:     {"uint32", "UINT32", 4},
	Uint64:     {"uint64", "UINT64", 8},
	Complex64:  {"complex64", "", 8},
	Complex128: {"complex128", "", 16},
	BFloat16:   {"bfloat16", "BF16", 2},
}

func (t DataType) known() bool { return t >= 0 && int(t) < len(dataTypes) }

// String returns the name of the type, or its number if overlapd has no name for it.
func (t DataType) String() string {
	if !t.known() {
		return "type " + strconv.Itoa(int(t))
	}
	return dataTypes[t].name
}

// Bytes returns the size of one element in bytes. It is 0 for strings and for types that
// overlapd cannot represent in flat memory.
func (t DataType) Bytes() int {
	if !t.known() {
		return 0
	}
	return dataTypes[t].bytes
}

// Protocol returns the name of the type in the Open Inference Protocol, or "" if the protocol
// does not support it.
func (t DataType) Protocol() string {
	if !t.known() {
		return ""
	}
	return dataTypes[t].wire
}

// ProtocolType returns the type with the given name in the Open Inference Protocol.
func ProtocolType(name string) (DataType, bool) {
	for t, d := range dataTypes {
		if d.wire == name && name != "" {
			return DataType(t), true
		}
	}
	return Undefined, false
}

// Dim is one dimension of a shape: a fixed size, or a name for a size that is known only when a
// query arrives.
type Dim struct {
	// Value is the size, or -1 if the dimension is not fixed.
	Value int64
	// Name is "" for a fixed dimension. Other dimensions may have a name.
	Name string
}

// Fixed reports whether the dimension is known before a query arrives.
func (d Dim) Fixed() bool { return d.Value >= 0 }

func (d Dim) String() string {
	switch {
	case d.Value >= 0:
		return strconv.FormatInt(d.Value, 10)
	case d.Name != "":
		return d.Name
	}
	return "?"
}

// Kind is the kind of value that a Type describes.
type Kind uint8

// The kinds of value that ONNX defines.
const (
	KindUnknown Kind = iota
	KindTensor
	KindSparseTensor
	KindSequence
	KindMap
	KindOptional
)

// Type is the type of a value in a graph.
type Type struct {
	Kind Kind
	// Elem is the element type of a tensor.
	Elem     DataType
	HasShape bool
	Shape    []Dim
	// Key is the key type of a map. The type of its values is in Item.
	Key DataType
	// Item is the element type of a sequence, an optional or a map.
	Item *Type
}

// TensorType returns the type of a tensor of the given shape.
func TensorType(elem DataType, shape ...Dim) Type {
	return Type{Kind: KindTensor, Elem: elem, HasShape: true, Shape: shape}
}

func (t Type) String() string {
	switch t.Kind {
	case KindTensor, KindSparseTensor:
		if !t.HasShape {
			return t.Elem.String()
		}
		dims := make([]string, len(t.Shape))
		for i, d := range t.Shape {
			dims[i] = d.String()
		}
		return fmt.Sprintf("%s[%s]", t.Elem, strings.Join(dims, ","))
	case KindSequence:
		return fmt.Sprintf("sequence(%s)", t.Item)
	case KindOptional:
		return fmt.Sprintf("optional(%s)", t.Item)
	case KindMap:
		return fmt.Sprintf("map(%s,%s)", t.Key, t.Item)
	}
	return "unknown"
}

// valueInfo is a value with the type that the file declares for it.
type valueInfo struct {
	Name string
	// Raw is the ValueInfoProto.
	Raw []byte
	// Type is of KindUnknown if the file declares none.
	Type Type
}

// valueInfos reads a ValueInfoProto and appends it to to. kind names it in errors.
func (p *parser) valueInfos(to *[]valueInfo, kind string, raw []byte) error {
	if err := p.spend(&p.left.ValueInfos, p.limits.ValueInfos, 1, "inputs, outputs and values"); err != nil {
		return err
	}
	v := valueInfo{Raw: clip(raw)}
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			v.Name = m.name()
		case 2:
			m.once(func(raw []byte) (err error) { v.Type, err = p.valueType(raw, 0); return err })
		}
	}
	if m.err != nil {
		return within(m.err, place(kind, v.Name, len(*to)))
	}
	*to = append(*to, v)
	return nil
}

// typeFields maps the field numbers of TypeProto to kinds.
var typeFields = map[protowire.Number]Kind{
	1: KindTensor, 4: KindSequence, 5: KindMap, 8: KindSparseTensor, 9: KindOptional,
}

// valueType reads a TypeProto that is nested depth types deep.
func (p *parser) valueType(raw []byte, depth int) (Type, error) {
	var t Type
	m := message{p: p, rest: raw}
	for m.next() {
		kind := typeFields[m.num]
		if kind == KindUnknown {
			continue
		}
		if t.Kind != KindUnknown {
			m.err = refuse(ErrNotONNX, "a type has two kinds")
			break
		}
		t.Kind = kind
		m.once(func(raw []byte) error { return p.typeBody(&t, raw, depth) })
	}
	return t, m.err
}

// typeBody reads the content of a TypeProto into t, whose kind is already set.
func (p *parser) typeBody(t *Type, raw []byte, depth int) error {
	item := func(raw []byte) error {
		depth, err := p.deeper(depth, "types")
		if err != nil {
			return err
		}
		of, err := p.valueType(raw, depth)
		t.Item = &of
		return err
	}
	m := message{p: p, rest: raw}
	for m.next() {
		switch {
		case t.Kind == KindTensor || t.Kind == KindSparseTensor:
			switch m.num {
			case 1:
				t.Elem = DataType(m.int())
			case 2:
				m.once(func(raw []byte) error { return p.shape(t, raw) })
			}
		case t.Kind == KindMap && m.num == 1:
			t.Key = DataType(m.int())
		case t.Kind == KindMap && m.num == 2, t.Kind != KindMap && m.num == 1:
			m.once(item)
		}
	}
	// Code that prints or writes a type relies on Item being set.
	if t.Item == nil && t.Kind != KindTensor && t.Kind != KindSparseTensor {
		t.Item = &Type{}
	}
	return m.err
}

func (p *parser) shape(t *Type, raw []byte) error {
	t.HasShape = true
	m := message{p: p, rest: raw}
	for m.next() {
		if m.num == 1 {
			m.each(func(raw []byte) error { return p.dim(t, raw) })
		}
	}
	return m.err
}

// dim reads one dimension of a shape. As in protobuf, the last of its two alternatives wins.
func (p *parser) dim(t *Type, raw []byte) error {
	if len(t.Shape) == p.limits.Rank {
		return refuse(ErrLimit, "it has more than %d dimensions", p.limits.Rank)
	}
	if err := p.spend(&p.left.Dims, p.limits.Dims, 1, "dimensions"); err != nil {
		return err
	}
	d := Dim{Value: -1}
	m := message{p: p, rest: raw}
	for m.next() {
		switch m.num {
		case 1:
			// Some exporters write -1 for a dimension that is not fixed.
			d = Dim{Value: max(m.int(), -1)}
		case 2:
			d = Dim{Value: -1, Name: m.name()}
		}
	}
	t.Shape = append(t.Shape, d)
	return m.err
}
