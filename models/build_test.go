package models

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// pb builds a protobuf message field by field.
type pb []byte

func (b pb) str(num protowire.Number, s string) pb { return AppendString(b, num, s) }
func (b pb) sub(num protowire.Number, m pb) pb     { return AppendField(b, num, m) }
func (b pb) int(num protowire.Number, v int64) pb  { return AppendInt(b, num, v) }

// testNode returns a NodeProto. Names are separated by spaces; "_" is an
// absent one.
func testNode(op, in, out string, attributes ...pb) pb {
	var n pb
	for _, name := range strings.Fields(in) {
		n = n.str(1, strings.TrimPrefix(name, "_"))
	}
	for _, name := range strings.Fields(out) {
		n = n.str(2, strings.TrimPrefix(name, "_"))
	}
	n = n.str(3, op+"_"+strings.Fields(out + " x")[0]).str(4, op)
	for _, a := range attributes {
		n = n.sub(5, a)
	}
	return n
}

func testTensor(name string, t DataType, dims ...int64) pb {
	m := pb(nil).int(2, int64(t)).str(8, name)
	for _, d := range dims {
		m = m.int(1, d)
	}
	return m
}

// raw64 returns raw data of int64 elements.
func raw64(v ...int64) pb {
	var b pb
	for _, i := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(i))
	}
	return b
}

func testValue(name string) pb {
	return AppendValueInfo(nil, name, TensorType(Float32, Dim{Value: -1, Name: "N"}, Dim{Value: 4}))
}

// testGraph returns a GraphProto with the given inputs, outputs and nodes.
func testGraph(in, out string, nodes ...pb) pb {
	g := pb(nil).str(2, "g")
	for _, name := range strings.Fields(in) {
		g = g.sub(11, testValue(name))
	}
	for _, name := range strings.Fields(out) {
		g = g.sub(12, testValue(name))
	}
	for _, n := range nodes {
		g = g.sub(1, n)
	}
	return g
}

// testModel returns a ModelProto around graph.
func testModel(graph pb) pb {
	return pb(nil).int(1, 8).str(2, "test").sub(8, pb(nil).str(1, "").int(2, 17)).sub(7, graph)
}

func graphAttribute(name string, g pb) pb { return pb(nil).str(1, name).sub(6, g).int(20, 5) }

// testFunction returns a FunctionProto of one input and one output.
func testFunction(name string, nodes ...pb) pb {
	f := pb(nil).str(1, name).str(10, "local").str(4, "x").str(5, "y")
	for _, n := range nodes {
		f = f.sub(7, n)
	}
	return f
}

// call returns a node that calls a function of testFunction.
func call(name, in, out string) pb { return testNode(name, in, out).str(7, "local") }

func mustParse(t testing.TB, data []byte) *File {
	t.Helper()
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wantRefused fails unless err is a formatError for sentinel whose message
// holds all of parts.
func wantRefused(t testing.TB, err, sentinel error, parts ...string) {
	t.Helper()
	var fault *formatError
	if !errors.As(err, &fault) || !errors.Is(err, sentinel) {
		t.Fatalf("got %v, want a formatError for %q", err, sentinel)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message %q does not hold %q", err, part)
		}
	}
}

func wantParseRefused(t testing.TB, data []byte, sentinel error, parts ...string) {
	t.Helper()
	_, err := Parse(data)
	wantRefused(t, err, sentinel, parts...)
}
