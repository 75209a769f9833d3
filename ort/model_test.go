package ort

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
)

// model is an ONNX model for a test.
type model struct {
	nodes           []node
	inputs, outputs []typed
}

type node struct {
	op              string
	inputs, outputs []string
	attributes      [][]byte
}

// typed is a value and the wire form of its type.
type typed struct {
	name string
	typ  []byte
}

const (
	testGraph    = "a graph"
	testProducer = "ort tests"
	testDomain   = "a domain"
	testVersion  = 7
)

func (m model) encode() []byte {
	graph := field(nil, 2, []byte(testGraph))
	for _, n := range m.nodes {
		graph = field(graph, 1, n.encode())
	}
	for _, v := range m.inputs {
		graph = field(graph, 11, v.encode())
	}
	for _, v := range m.outputs {
		graph = field(graph, 12, v.encode())
	}
	b := number(nil, 1, 8)
	b = field(b, 2, []byte(testProducer))
	b = field(b, 4, []byte(testDomain))
	b = number(b, 5, testVersion)
	b = field(b, 7, graph)
	b = field(b, 8, number(nil, 2, 17))
	return b
}

func (n node) encode() []byte {
	var b []byte
	for _, name := range n.inputs {
		b = field(b, 1, []byte(name))
	}
	for _, name := range n.outputs {
		b = field(b, 2, []byte(name))
	}
	b = field(b, 4, []byte(n.op))
	for _, a := range n.attributes {
		b = field(b, 5, a)
	}
	return b
}

func (v typed) encode() []byte { return field(field(nil, 1, []byte(v.name)), 2, v.typ) }

// tensorOf returns a tensor type; a dimension is an int or a name.
func tensorOf(elem models.DataType, dims ...any) []byte {
	shape := []byte{}
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			shape = field(shape, 1, number(nil, 1, uint64(d)))
		case string:
			shape = field(shape, 1, field(nil, 2, []byte(d)))
		}
	}
	return field(nil, 1, field(number(nil, 1, uint64(elem)), 2, shape))
}

func tensorOfAnyRank(elem models.DataType) []byte { return field(nil, 1, number(nil, 1, uint64(elem))) }
func sequenceOf(item []byte) []byte               { return field(nil, 4, field(nil, 1, item)) }
func optionalOf(item []byte) []byte               { return field(nil, 9, field(nil, 1, item)) }

// typeAttribute is an attribute that holds a type.
func typeAttribute(name string, typ []byte) []byte {
	return number(field(field(nil, 1, []byte(name)), 14, typ), 20, 13)
}

func field(b []byte, n protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), value)
}

func number(b []byte, n protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), value)
}

// unary is a model of one node from x to y, both of type typ.
func unary(op string, typ []byte) model {
	return model{
		nodes:   []node{{op: op, inputs: []string{"x"}, outputs: []string{"y"}}},
		inputs:  []typed{{"x", typ}},
		outputs: []typed{{"y", typ}},
	}
}

// add is a model of one node, z = x + y, of vectors of any length.
func add() model {
	vector := tensorOf(models.Float32, "n")
	return model{
		nodes:   []node{{op: "Add", inputs: []string{"x", "y"}, outputs: []string{"z"}}},
		inputs:  []typed{{"x", vector}, {"y", vector}},
		outputs: []typed{{"z", vector}},
	}
}

// nonZero is a model whose output's shape depends on its input's values.
func nonZero() model {
	return model{
		nodes:   []node{{op: "NonZero", inputs: []string{"x"}, outputs: []string{"y"}}},
		inputs:  []typed{{"x", tensorOf(models.Float32, "n")}},
		outputs: []typed{{"y", tensorOf(models.Int64, 1, "k")}},
	}
}
