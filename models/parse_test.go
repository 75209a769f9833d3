package models

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseReadsTheModel(t *testing.T) {
	graph := testGraph("x", "y",
		testNode("Relu", "x _", "h", pb(nil).str(1, "axis").int(3, 2).int(20, 2)),
		testNode("Add", "h w", "y")).
		sub(5, testTensor("w", Float32, 4).sub(9, make(pb, 16))).
		sub(13, testValue("h"))
	data := testModel(graph).str(3, "1.0").str(4, "org.test").
		sub(14, pb(nil).str(1, "key").str(2, "value"))
	f := mustParse(t, data)

	if f.IRVersion != 8 || len(f.Opsets) != 1 {
		t.Errorf("IR version %d, operator sets: %v", f.IRVersion, f.Opsets)
	}
	g := &f.Graph
	if g.Name != "g" || len(g.Nodes) != 2 {
		t.Fatalf("graph %q with %d nodes", g.Name, len(g.Nodes))
	}
	n := &g.Nodes[0]
	if d := cmp.Diff([]string{"x", ""}, n.Inputs); d != "" || n.OpType != "Relu" || n.Name != "Relu_h" || n.Subgraphs {
		t.Errorf("node %q (%s): %s", n.Name, n.OpType, d)
	}
	i := &g.Initializers[0]
	if d := cmp.Diff([]int64{4}, i.Dims); d != "" || i.Name != "w" || i.Type != Float32 || i.Bytes != 16 {
		t.Errorf("initializer %+v: %s", i, d)
	}
	if got := g.Inputs[0].Type.String(); got != "float32[N,4]" {
		t.Errorf("type of the input: %s", got)
	}
}

func TestRawLiesInTheFile(t *testing.T) {
	n := testNode("Relu", "x", "y")
	f := mustParse(t, testModel(testGraph("x", "y", n)))
	raw := f.Graph.Nodes[0].Raw
	if !bytes.Equal(raw, n) || cap(raw) != len(raw) {
		t.Errorf("raw has %d bytes and room for %d, want %d and no room", len(raw), cap(raw), len(n))
	}
	if i := bytes.Index(f.data, n); &f.data[i] != &raw[0] {
		t.Error("raw was copied")
	}
}

func TestFeedInputsOfOldFiles(t *testing.T) {
	graph := testGraph("w x", "y", testNode("Add", "x w", "y")).
		sub(5, testTensor("w", Float32, 1).sub(9, make(pb, 4)))
	f := mustParse(t, pb(nil).int(1, 3).sub(7, graph))
	feeds := f.Graph.FeedInputs()
	if len(feeds) != 1 || feeds[0].Name != "x" {
		t.Errorf("got %v, want x", feeds)
	}
}

func TestNotONNX(t *testing.T) {
	whole := testModel(testGraph("x", "y", testNode("Relu", "x", "y")))
	node := testNode("Relu", "x", "y")
	for name, data := range map[string][]byte{
		"nothing":           nil,
		"cut off":           whole[:len(whole)-3],
		"no graph":          pb(nil).int(1, 8),
		"two graphs":        whole.sub(7, testGraph("", "")),
		"group":             append(testModel(nil), 0xfb, 0x01),
		"wrong wire type":   testModel(testGraph("", "").int(1, 5)),
		"number as bytes":   pb(nil).str(1, "8").sub(7, nil),
		"length beyond end": testModel(append(testGraph("", ""), 0x0a, 0xff, 0xff, 0xff, 0xff, 0x07)),
		"broken ints":       testModel(testGraph("", "").sub(5, testTensor("w", Int64).sub(1, pb{0x80}))),
		"broken floats":     testModel(testGraph("", "").sub(5, testTensor("w", Float32, 1).sub(4, pb{1, 2, 3}))),
		"two tensors": testModel(testGraph("x", "y", node.sub(5,
			pb(nil).str(1, "value").sub(5, testTensor("", Float32, 0)).sub(5, testTensor("", Float32, 0))))),
	} {
		t.Run(name, func(t *testing.T) { wantParseRefused(t, data, ErrNotONNX) })
	}
}

func TestFaultNamesItsByte(t *testing.T) {
	data := testModel(testGraph("x", "y", testNode("Relu", "x", "y")))
	at := len(data)
	_, err := Parse(append(data, 0x3f))
	var fault *formatError
	if !errors.As(err, &fault) || fault.Offset != at {
		t.Errorf("got %v, want a fault at byte %d", err, at)
	}
}

func TestIRVersion(t *testing.T) {
	for v := int64(-1); v < 100; v++ {
		_, err := Parse(pb(nil).int(1, v).sub(7, nil))
		if v >= 3 {
			if err != nil {
				t.Errorf("version %d: %v", v, err)
			}
			continue
		}
		wantRefused(t, err, errVersion)
	}
}

func TestTrainingInformationIsRefused(t *testing.T) {
	wantParseRefused(t, testModel(nil).sub(20, nil), errGraph, "training")
}

func TestNamesInMessagesAreShortAndQuoted(t *testing.T) {
	long := "a\n" + strings.Repeat("b", 3000)
	_, err := Parse(testModel(testGraph("", "y", testNode("Relu", "x", "y").str(3, long))))
	wantRefused(t, err, errGraph, `node "a\nbbb`, `"x"`)
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
		t.Errorf("message of %d bytes: %q", len(err.Error()), err)
	}
}
