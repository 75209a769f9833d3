package segments

import (
	"errors"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
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

// ONNX Runtime decides which versions it takes: its refusal names the newest one, and
// what to do.
func TestVersionsToCome(t *testing.T) {
	env := openEnv(t)
	for name, test := range map[string]struct {
		ir, opset int64
		phrase    string
	}{
		"format":    {999, 17, "IR version: 999, max supported IR version: "},
		"operators": {8, 999, "Current official support for domain ai.onnx is till opset "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenModel(env, Config{Path: versioned(test.ir, test.opset).write(t), CacheDir: t.TempDir()})
			if !errors.Is(err, wire.ErrModel) {
				t.Fatalf("got %v", err)
			}
			for _, phrase := range []string{test.phrase, "export the model for a supported version, or set ", "OVERLAPD_ORT", env.Library().Version()} {
				if !strings.Contains(err.Error(), phrase) {
					t.Errorf("%q is not in: %v", phrase, err)
				}
			}
		})
	}
}
