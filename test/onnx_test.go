package test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
)

func float32bits(v float64) uint32  { return math.Float32bits(float32(v)) }
func float32value(b uint32) float64 { return float64(math.Float32frombits(b)) }

// message is a protobuf message under construction. The numbers of fields are
// those of onnx.proto.
type message []byte

func (m message) text(field protowire.Number, s string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), s)
}

func (m message) message(field protowire.Number, sub message) message {
	return m.text(field, string(sub))
}

func (m message) number(field protowire.Number, v int64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(v))
}

// node returns a NodeProto.
func node(op string, inputs []string, output string, attributes ...message) message {
	var m message
	for _, in := range inputs {
		m = m.text(1, in)
	}
	m = m.text(2, output).text(3, op+" "+output).text(4, op)
	for _, a := range attributes {
		m = m.message(5, a)
	}
	return m
}

// graphAttribute and intsAttribute return AttributeProtos.
func graphAttribute(name string, graph message) message {
	return message(nil).text(1, name).message(6, graph).number(20, 5)
}

func intsAttribute(name string, values ...int64) message {
	m := message(nil).text(1, name).number(20, 7)
	for _, v := range values {
		m = m.number(8, v)
	}
	return m
}

// floats returns an initializer.
func floats(name string, dims []int64, value func(i int) float32) message {
	m, n := message(nil), 1
	for _, d := range dims {
		m, n = m.number(1, d), n*int(d)
	}
	raw := make([]byte, 0, 4*n)
	for i := range n {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(value(i)))
	}
	return m.number(2, int64(models.Float32)).text(8, name).text(9, string(raw))
}

// outside returns an initializer whose data is in another file.
func outside(name, location string) message {
	entry := func(key, value string) message { return message(nil).text(1, key).text(2, value) }
	return message(nil).number(1, 1).number(2, int64(models.Float32)).text(8, name).number(14, 1).
		message(13, entry("location", location)).message(13, entry("offset", "0")).message(13, entry("length", "4"))
}

// graph is a GraphProto from X to Y, both one float.
func graph(nodes, initializers []message) message {
	one := models.TensorType(models.Float32, models.Dim{Value: 1})
	m := message(nil).text(2, "g").
		message(11, models.AppendValueInfo(nil, "X", one)).message(12, models.AppendValueInfo(nil, "Y", one))
	for _, n := range nodes {
		m = m.message(1, n)
	}
	for _, i := range initializers {
		m = m.message(5, i)
	}
	return m
}

// model is a ModelProto.
func model(graph message, functions ...message) message {
	opset := func(domain string, version int64) message {
		return message(nil).text(1, domain).number(2, version)
	}
	m := message(nil).number(1, 8).text(2, "test").message(8, opset("", 17)).message(8, opset("local", 1)).message(7, graph)
	for _, f := range functions {
		m = m.message(25, f)
	}
	return m
}

// identity returns a model of some nodes whose output is its input.
func identity(nodes int) message {
	var list []message
	from := "X"
	for i := range nodes {
		to := fmt.Sprintf("t%d", i)
		if i == nodes-1 {
			to = "Y"
		}
		list = append(list, node("Identity", []string{from}, to))
		from = to
	}
	return model(graph(list, nil))
}

// slow returns a model whose output is its input, after that many products
// of matrices that take some milliseconds each.
func slow(steps int) message {
	const rows, width = 512, 256
	list := []message{node("Add", []string{"Z", "X"}, "t0")}
	for i := range steps {
		list = append(list, node("MatMul", []string{fmt.Sprint("t", i), "W"}, fmt.Sprint("t", i+1)))
	}
	list = append(list,
		node("ReduceMax", []string{fmt.Sprint("t", steps)}, "m", intsAttribute("axes", 0)),
		node("ReduceMax", []string{"m"}, "Y", intsAttribute("axes", 1), message(nil).text(1, "keepdims").number(3, 0).number(20, 2)))
	unit := func(i int) float32 {
		if i/width == i%width {
			return 1
		}
		return 0
	}
	return model(graph(list, []message{
		floats("W", []int64{width, width}, unit),
		floats("Z", []int64{rows, width}, func(int) float32 { return 0 }),
	}))
}

// convolutions returns a small net that takes images of any size: 128 bytes of
// intermediates for each of their pixels.
func convolutions() message {
	return convolutionsOf(models.Dim{Value: 1}, models.Dim{Value: -1, Name: "H"}, models.Dim{Value: -1, Name: "W"})
}

// convolutionsOf is convolutions for so many images of such sides.
func convolutionsOf(images, height, width models.Dim) message {
	const channels = 16
	image := models.TensorType(models.Float32, images, models.Dim{Value: 1}, height, width)
	all := models.TensorType(models.Float32, images, models.Dim{Value: channels}, models.Dim{Value: 1}, models.Dim{Value: 1})
	unit := func(int) float32 { return 1 }
	g := message(nil).text(2, "g").message(11, models.AppendValueInfo(nil, "X", image)).message(12, models.AppendValueInfo(nil, "Y", all)).
		message(1, node("Conv", []string{"X", "V"}, "a")).message(1, node("Conv", []string{"a", "W"}, "b")).
		message(1, node("GlobalMaxPool", []string{"b"}, "Y")).
		message(5, floats("V", []int64{channels, 1, 3, 3}, unit)).message(5, floats("W", []int64{channels, channels, 3, 3}, unit))
	return model(g)
}

// image is a query of convolutions, and checkImage what it answers.
func image(side int64) query {
	data := make([]float64, side*side)
	for i := range data {
		data[i] = 1
	}
	return query{Inputs: []tensor{{Name: "X", Shape: []int64{1, 1, side, side}, Datatype: "FP32", Data: data}}}
}

func checkImage(q query, a answer) error {
	const want = 9 * 16 * 9
	if len(a.Outputs) != 1 || len(a.Outputs[0].Data) != 16 || a.Outputs[0].Data[7] != want {
		return fmt.Errorf("an image of %v: %v", q.Inputs[0].Shape, a)
	}
	return nil
}

// keeping returns a loop that keeps 16 KiB of each of its trips, and answers the
// greatest number in all of it, which is one.
func keeping() message {
	scalar := models.TensorType(models.Bool)
	body := message(nil).text(2, "body").
		message(11, models.AppendValueInfo(nil, "i", models.TensorType(models.Int64))).message(11, models.AppendValueInfo(nil, "c", scalar)).
		message(12, models.AppendValueInfo(nil, "d", scalar)).message(12, models.AppendValueInfo(nil, "kept", models.TensorType(models.Float32, models.Dim{Value: 4096}))).
		message(1, node("Identity", []string{"c"}, "d")).message(1, node("Identity", []string{"K"}, "kept"))
	g := message(nil).text(2, "g").
		message(11, models.AppendValueInfo(nil, "N", models.TensorType(models.Int64, models.Dim{Value: 1}))).
		message(12, models.AppendValueInfo(nil, "Y", models.TensorType(models.Float32))).
		message(1, node("Loop", []string{"N", ""}, "all", graphAttribute("body", body))).
		message(1, node("ReduceMax", []string{"all"}, "Y", message(nil).text(1, "keepdims").number(3, 0).number(20, 2))).
		message(5, floats("K", []int64{4096}, func(int) float32 { return 1 }))
	return model(g)
}

// trips is a query of keeping.
func trips(n float64) query {
	return query{Inputs: []tensor{{Name: "N", Shape: []int64{1}, Datatype: "INT64", Data: []float64{n}}}}
}

// one is a query of a model of graph.
func one(x float64) query {
	return query{Inputs: []tensor{{Name: "X", Shape: []int64{1}, Datatype: "FP32", Data: []float64{x}}}}
}

// write puts a file into a new folder.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
