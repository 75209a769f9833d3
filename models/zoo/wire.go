package zoo

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
)

// The functions here append ONNX messages to b. The numbers are those of the
// fields in onnx.proto.

// appendHead appends the fields of a GraphProto without its initializers.
func (g *graph) appendHead(b []byte) []byte {
	for _, n := range g.nodes {
		b = appendMessage(b, 1, n.append(nil))
	}
	b = appendString(b, 2, g.name)
	for _, in := range g.inputs {
		b = appendMessage(b, 11, models.AppendValueInfo(nil, in.Name, in.Type))
	}
	for _, out := range g.outputs {
		b = appendMessage(b, 12, models.AppendValueInfo(nil, out.Name, out.Type))
	}
	return b
}

// append appends the fields of a NodeProto.
func (n *node) append(b []byte) []byte {
	for _, name := range n.inputs {
		b = appendString(b, 1, name)
	}
	for _, name := range n.outputs {
		b = appendString(b, 2, name)
	}
	b = appendString(b, 3, n.name)
	b = appendString(b, 4, n.op)
	for _, a := range n.attrs {
		b = appendMessage(b, 5, a.append(nil))
	}
	return b
}

// append appends the fields of an AttributeProto.
func (a *attribute) append(b []byte) []byte {
	b = appendString(b, 1, a.name)
	switch a.kind {
	case kindFloat:
		b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(a.float))
	case kindInteger:
		b = appendUint(b, 3, uint64(a.integers[0]))
	case kindIntegers:
		for _, v := range a.integers {
			b = appendUint(b, 8, uint64(v))
		}
	}
	return appendUint(b, 20, uint64(a.kind))
}

// appendHead appends t as an initializer of a graph, except for the raw data
// that must follow.
func (t *tensor) appendHead(b []byte) []byte {
	var body []byte
	for _, d := range t.dims {
		body = appendUint(body, 1, uint64(d))
	}
	body = appendUint(body, 2, uint64(t.elem))
	body = appendString(body, 8, t.name)
	body = protowire.AppendTag(body, 9, protowire.BytesType)
	body = protowire.AppendVarint(body, uint64(t.bytes()))

	b = protowire.AppendTag(b, 5, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(int64(len(body))+t.bytes()))
	return append(b, body...)
}

func appendProperty(b []byte, key, value string) []byte {
	return appendMessage(b, 14, appendString(appendString(nil, 1, key), 2, value))
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}
