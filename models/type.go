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
	name  string
	wire  string // name in the Open Inference Protocol, empty if it has none
	bytes int    // size of one element, 0 if it varies or is below a byte
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

// String returns the name of the type, or its number if it has no name here.
func (t DataType) String() string {
	if !t.known() {
		return "type " + strconv.Itoa(int(t))
	}
	return dataTypes[t].name
}

// Bytes returns the size of one element in bytes. It is 0 for strings and for
// types that overlapd cannot hold in flat memory.
func (t DataType) Bytes() int {
	if !t.known() {
		return 0
	}
	return dataTypes[t].bytes
}

// Protocol returns the name of the type in the Open Inference Protocol, or ""
// if the protocol cannot carry it.
func (t DataType) Protocol() string {
	if !t.known() {
		return ""
	}
	return dataTypes[t].wire
}

// ProtocolType returns the type that the Open Inference Protocol calls name.
func ProtocolType(name string) (DataType, bool) {
	for t, d := range dataTypes {
		if d.wire == name && name != "" {
			return DataType(t), true
		}
	}
	return Undefined, false
}

// Dim is one dimension of a shape: a number, or a name for what is known only
// when a query arrives.
type Dim struct {
	Value int64  // -1 if it is not fixed
	Name  string // "" if it is fixed, or not fixed and without a name
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

// Kind is the sort of value that a Type describes.
type Kind uint8

// The kinds of value that ONNX knows.
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
	Kind     Kind
	Elem     DataType // the element type of a tensor; the value type of a map is in Item
	HasShape bool
	Shape    []Dim
	Key      DataType // the key type of a map
	Item     *Type    // what a sequence, an optional or a map holds
}

// Tensor returns the type of a tensor of the given shape.
func Tensor(elem DataType, shape ...Dim) Type {
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

// valueInfo is what a file declares of a value.
type valueInfo struct {
	Name string
	Raw  []byte // ValueInfoProto
	Type Type   // KindUnknown if the file does not say
}

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

// typeFields maps the fields of a TypeProto to kinds.
var typeFields = map[protowire.Number]Kind{
	1: KindTensor, 4: KindSequence, 5: KindMap, 8: KindSparseTensor, 9: KindOptional,
}

func (p *parser) valueType(raw []byte, depth int) (Type, error) {
	var t Type
	m := message{p: p, rest: raw}
	for m.next() {
		kind := typeFields[m.num]
		if kind == KindUnknown {
			continue
		}
		if t.Kind != KindUnknown {
			m.err = refuse(ErrNotONNX, "a type is of two kinds")
			break
		}
		t.Kind = kind
		m.once(func(raw []byte) error { return p.typeBody(&t, raw, depth) })
	}
	return t, m.err
}

// typeBody reads what stands inside a TypeProto into t, whose kind is known.
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
			d = Dim{Value: max(m.int(), -1)} // some writers say -1 for "not fixed"
		case 2:
			d = Dim{Value: -1, Name: m.name()}
		}
	}
	t.Shape = append(t.Shape, d)
	return m.err
}
