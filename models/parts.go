package models

import "google.golang.org/protobuf/encoding/protowire"

// Parts assembles a model from serialized parts of other models. It copies the bytes as they
// are. Each slice element is one protobuf message.
type Parts struct {
	// IRVersion applies to the assembled model.
	IRVersion int64
	Opsets    [][]byte
	Functions [][]byte
	// Name is the name of the graph.
	Name string
	// Nodes must be in topological order.
	Nodes              [][]byte
	Initializers       [][]byte
	SparseInitializers [][]byte
	Inputs             [][]byte
	Outputs            [][]byte
}

// Parts returns the parts of the whole file.
func (f *File) Parts() *Parts {
	p := &Parts{IRVersion: f.IRVersion, Opsets: f.Opsets, Name: f.Graph.Name}
	for _, fn := range f.Functions {
		p.Functions = append(p.Functions, fn.Raw)
	}
	for _, n := range f.Graph.Nodes {
		p.Nodes = append(p.Nodes, n.Raw)
	}
	for _, i := range f.Graph.Initializers {
		if i.Sparse {
			p.SparseInitializers = append(p.SparseInitializers, i.Raw)
		} else {
			p.Initializers = append(p.Initializers, i.Raw)
		}
	}
	for _, v := range f.Graph.Inputs {
		p.Inputs = append(p.Inputs, v.Raw)
	}
	for _, v := range f.Graph.Outputs {
		p.Outputs = append(p.Outputs, v.Raw)
	}
	return p
}

// graphFields lists the parts of the graph with their field numbers in GraphProto.
func (p *Parts) graphFields() [5]struct {
	num   protowire.Number
	parts [][]byte
} {
	return [5]struct {
		num   protowire.Number
		parts [][]byte
	}{{1, p.Nodes}, {5, p.Initializers}, {15, p.SparseInitializers}, {11, p.Inputs}, {12, p.Outputs}}
}

func (p *Parts) graphSize() int {
	n := sizeField(2, len(p.Name))
	for _, f := range p.graphFields() {
		n += sizeFields(f.num, f.parts)
	}
	return n
}

// Size returns the number of bytes that Append appends. Nested messages need their size
// before their content, so it is computed first.
func (p *Parts) Size() int {
	return protowire.SizeTag(1) + protowire.SizeVarint(uint64(p.IRVersion)) +
		sizeFields(8, p.Opsets) + sizeField(7, p.graphSize()) + sizeFields(25, p.Functions)
}

// Append appends the model, a ModelProto, to dst.
func (p *Parts) Append(dst []byte) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.VarintType)
	dst = protowire.AppendVarint(dst, uint64(p.IRVersion))
	dst = appendFields(dst, 8, p.Opsets)
	dst = protowire.AppendTag(dst, 7, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(p.graphSize()))
	dst = AppendString(dst, 2, p.Name)
	for _, f := range p.graphFields() {
		dst = appendFields(dst, f.num, f.parts)
	}
	return appendFields(dst, 25, p.Functions)
}

func sizeField(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

func sizeFields(num protowire.Number, parts [][]byte) int {
	n := 0
	for _, b := range parts {
		n += sizeField(num, len(b))
	}
	return n
}

// AppendField appends a length-delimited field, bytes or a message, to dst.
func AppendField(dst []byte, num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), b)
}

func appendFields(dst []byte, num protowire.Number, parts [][]byte) []byte {
	for _, b := range parts {
		dst = AppendField(dst, num, b)
	}
	return dst
}

// AppendString appends a string field to dst.
func AppendString(dst []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), s)
}

// AppendInt appends an integer field to dst.
func AppendInt(dst []byte, num protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), uint64(v))
}

// Identity returns the NodeProto of an Identity node.
func Identity(in, out string) []byte {
	return AppendString(AppendString(AppendString(nil, 1, in), 2, out), 4, "Identity")
}

// AppendValueInfo appends a ValueInfoProto to dst, as Parts takes it for an input or output.
// For KindUnknown it omits the type, which a runtime then infers.
func AppendValueInfo(dst []byte, name string, t Type) []byte {
	dst = AppendString(dst, 1, name)
	if t.Kind == KindUnknown {
		return dst
	}
	return AppendField(dst, 2, appendType(nil, t))
}

func appendType(dst []byte, t Type) []byte {
	var body []byte
	switch t.Kind {
	case KindTensor:
		return AppendField(dst, 1, appendTensorType(nil, t))
	case KindSparseTensor:
		return AppendField(dst, 8, appendTensorType(nil, t))
	case KindMap:
		body = AppendInt(body, 1, int64(t.Key))
		return AppendField(dst, 5, appendItem(body, 2, t.Item))
	case KindSequence:
		return AppendField(dst, 4, appendItem(body, 1, t.Item))
	case KindOptional:
		return AppendField(dst, 9, appendItem(body, 1, t.Item))
	}
	return dst
}

func appendItem(dst []byte, num protowire.Number, item *Type) []byte {
	if item == nil {
		item = &Type{}
	}
	return AppendField(dst, num, appendType(nil, *item))
}

func appendTensorType(dst []byte, t Type) []byte {
	dst = AppendInt(dst, 1, int64(t.Elem))
	if !t.HasShape {
		return dst
	}
	var shape []byte
	for _, d := range t.Shape {
		var dim []byte
		switch {
		case d.Fixed():
			dim = AppendInt(dim, 1, d.Value)
		case d.Name != "":
			dim = AppendString(dim, 2, d.Name)
		}
		shape = AppendField(shape, 1, dim)
	}
	return AppendField(dst, 2, shape)
}
