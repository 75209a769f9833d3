package segments

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/overlapd/overlapd/models"
)

// graph builds an ONNX model for a test.
type graph struct{ parts models.Parts }

func newGraph() *graph {
	return &graph{parts: models.Parts{IRVersion: 8, Name: "test", Opsets: [][]byte{opsetID("", 17)}}}
}

func opsetID(domain string, version int64) []byte {
	return models.AppendInt(models.AppendString(nil, 1, domain), 2, version)
}

// list is a list of names.
func list(names ...string) []string { return names }

// node adds an operator and returns its first output.
func (g *graph) node(op string, in, out []string, attributes ...[]byte) string {
	g.parts.Nodes = append(g.parts.Nodes, nodeProto(op, "", in, out, attributes...))
	return out[0]
}

func nodeProto(op, domain string, in, out []string, attributes ...[]byte) []byte {
	var b []byte
	for _, name := range in {
		b = models.AppendString(b, 1, name)
	}
	for _, name := range out {
		b = models.AppendString(b, 2, name)
	}
	b = models.AppendString(models.AppendString(b, 3, op+" of "+out[0]), 4, op)
	for _, a := range attributes {
		b = models.AppendField(b, 5, a)
	}
	return models.AppendString(b, 7, domain)
}

// open is the size of a dimension that a query decides.
const open = -1

func tensorType(elem models.DataType, dims ...int64) models.Type {
	t := models.Type{Kind: models.KindTensor, Elem: elem, HasShape: true}
	for i, d := range dims {
		dim := models.Dim{Value: d}
		if d == open {
			dim.Name = string(rune('N' + i))
		}
		t.Shape = append(t.Shape, dim)
	}
	return t
}

func (g *graph) input(name string, elem models.DataType, dims ...int64) string {
	g.parts.Inputs = append(g.parts.Inputs, models.AppendValueInfo(nil, name, tensorType(elem, dims...)))
	return name
}

// output lists an output of which nothing but the element type is said.
func (g *graph) output(name string, elem models.DataType) {
	g.parts.Outputs = append(g.parts.Outputs, models.AppendValueInfo(nil, name, models.Type{Kind: models.KindTensor, Elem: elem}))
}

func (g *graph) floats(name string, dims []int64, values ...float32) string {
	return g.weights(name, models.Float32, dims, floatBytes(values...))
}

func (g *graph) int64s(name string, values ...int64) string {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return g.weights(name, models.Int64, []int64{int64(len(values))}, b)
}

func (g *graph) weights(name string, elem models.DataType, dims []int64, data []byte) string {
	g.parts.Initializers = append(g.parts.Initializers, tensorProto(name, elem, dims, data))
	return name
}

func tensorProto(name string, elem models.DataType, dims []int64, data []byte) []byte {
	var b []byte
	for _, d := range dims {
		b = models.AppendInt(b, 1, d)
	}
	b = models.AppendInt(b, 2, int64(elem))
	b = models.AppendString(b, 8, name)
	return models.AppendField(b, 9, data)
}

func floatBytes(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// Attributes.

func intAttribute(name string, v int64) []byte {
	return models.AppendInt(models.AppendInt(models.AppendString(nil, 1, name), 3, v), 20, 2)
}

func graphAttribute(name string, g *graph) []byte {
	body := models.AppendString(nil, 2, name)
	for _, n := range g.parts.Nodes {
		body = models.AppendField(body, 1, n)
	}
	for _, i := range g.parts.Inputs {
		body = models.AppendField(body, 11, i)
	}
	for _, o := range g.parts.Outputs {
		body = models.AppendField(body, 12, o)
	}
	return models.AppendInt(models.AppendField(models.AppendString(nil, 1, name), 6, body), 20, 5)
}

func (g *graph) encode() []byte { return g.parts.Append(nil) }

// write puts the model into a file of its own folder.
func (g *graph) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, g.encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
