package segments

import (
	"testing"

	"github.com/overlapd/overlapd/models"
)

// versioned is a model of a version of the format and of ONNX's operators.
func versioned(ir, opset int64) *graph {
	g := newGraph()
	g.parts.IRVersion, g.parts.Opsets = ir, [][]byte{opsetID("", opset)}
	g.input("x", models.Float32, open, 4)
	g.node("Relu", list("x"), list("y"))
	g.output("y", models.Float32)
	return g
}

// What the current exporter of ONNX (1.23) writes is served.
func TestCurrentVersions(t *testing.T) {
	expectWhole(t, versioned(14, 28).write(t), rows(t, 1), rows(t, 3))
}
