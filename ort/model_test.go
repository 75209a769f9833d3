package ort

import (
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

type typed struct {
	name string
	typ  models.Type
}

func (m model) encode() []byte {
	parts := models.Parts{IRVersion: 8, Opsets: [][]byte{models.AppendInt(nil, 2, 17)}, Name: "test"}
	for _, n := range m.nodes {
		parts.Nodes = append(parts.Nodes, n.encode())
	}
	for _, v := range m.inputs {
		parts.Inputs = append(parts.Inputs, models.AppendValueInfo(nil, v.name, v.typ))
	}
	for _, v := range m.outputs {
		parts.Outputs = append(parts.Outputs, models.AppendValueInfo(nil, v.name, v.typ))
	}
	return parts.Append(nil)
}

func (n node) encode() []byte {
	var b []byte
	for _, name := range n.inputs {
		b = models.AppendString(b, 1, name)
	}
	for _, name := range n.outputs {
		b = models.AppendString(b, 2, name)
	}
	b = models.AppendString(b, 4, n.op)
	for _, a := range n.attributes {
		b = models.AppendField(b, 5, a)
	}
	return b
}

// tensorOf returns a tensor type; a dimension is an int or a name.
func tensorOf(elem models.DataType, dims ...any) models.Type {
	t := models.TensorType(elem)
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			t.Shape = append(t.Shape, models.Dim{Value: int64(d)})
		case string:
			t.Shape = append(t.Shape, models.Dim{Value: -1, Name: d})
		}
	}
	return t
}

func sequenceOf(item models.Type) models.Type {
	return models.Type{Kind: models.KindSequence, Item: &item}
}
func optionalOf(item models.Type) models.Type {
	return models.Type{Kind: models.KindOptional, Item: &item}
}

// unary is a model of one node from x to y, both of type typ.
func unary(op string, typ models.Type) model {
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
