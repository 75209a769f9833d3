package segments

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/internal/fakes/fakeops"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// custom returns a model of [N, 4] with the custom operator Double among operators of ONNX,
// and in a branch of one.
func custom() *graph {
	double := func(in, out string) []byte { return nodeProto("Double", fakeops.Domain, list(in), list(out)) }
	g := xGraph()
	g.parts.Opsets = append(g.parts.Opsets, opsetID(fakeops.Domain, 1))
	g.node("Neg", list("x"), list("a"))
	g.parts.Nodes = append(g.parts.Nodes, double("a", "b"))
	g.node("ReduceSum", list("b"), list("sum"), intAttribute("keepdims", 0))
	g.floats("zero", nil, 0)
	g.node("Greater", list("sum", "zero"), list("yes"))
	then, other := newGraph(), newGraph()
	then.parts.Nodes = append(then.parts.Nodes, double("b", "c"))
	then.output("c", models.Float32)
	other.node("Abs", list("b"), list("d"))
	other.output("d", models.Float32)
	g.node("If", list("yes"), list("e"), graphAttribute("then_branch", then), graphAttribute("else_branch", other))
	g.node("Add", list("e", "b"), list("y"))
	g.output("y", models.Float32)
	return g
}

// Models with custom operators are cut around them, and give what the whole model gives.
func TestCustomOperators(t *testing.T) {
	libraries := []string{fakeops.Build(t)}
	env := openEnvWith(t, ort.EnvOptions{IntraThreads: 2, OpLibraries: libraries})
	path := custom().write(t)
	s, err := env.NewSessionFromFile(path, ort.SessionOptions{Optimize: true, CustomOps: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &whole{env, s}
	far, _ := openFakeGPU(t, env, fakeSpec{})
	for _, c := range []Config{{}, {Target: 1}, {Target: 2}, {Units: 2}, {Device: far}, {Device: far, Rungs: 2}} {
		c.Path, c.OpLibraries = path, libraries
		m := openCut(t, env, c)
		if n := len(m.Model().Operators); c.Target == 0 && n < 6 || c.Target > 0 && n != c.Target {
			t.Errorf("cut to %d: %d operators", c.Target, n)
		}
		for _, n := range []int64{1, 3, 1} {
			q := rows(t, n)
			want, err := w.run([]wire.QueryTensors{q})
			if err != nil {
				t.Fatal(err)
			}
			got, err := runAll(m, 1, q)
			if err != nil {
				t.Fatal(err)
			}
			if err := compare(got, want); err != nil {
				t.Errorf("cut to %d, %d rows: %v", c.Target, n, err)
			}
		}
	}
}

// A model has another name with another library: its cached form and its measurements may
// differ.
func TestCustomOperatorsNameTheModel(t *testing.T) {
	skipWithoutLibrary(t)
	spec := wire.LoadSpec{ModelPath: custom().write(t), CacheDir: t.TempDir(), OpLibraries: []string{fakeops.Build(t)}}
	library, err := os.ReadFile(spec.OpLibraries[0])
	if err != nil {
		t.Fatal(err)
	}
	hashes := map[string]bool{}
	for _, test := range []struct {
		after string // the end of the library
		hit   bool
	}{{"", false}, {"", true}, {"another", false}} {
		spec.OpLibraries[0] = filepath.Join(t.TempDir(), "copy.so")
		if err := os.WriteFile(spec.OpLibraries[0], append(library, test.after...), 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := LoadONNX(spec, worker.Memory{}, nothing)
		if err != nil {
			t.Fatal(err)
		}
		info := e.Info()
		if hashes[info.Hash] = true; info.CacheHit != test.hit {
			t.Errorf("a library with %q at its end: cache hit %t", test.after, info.CacheHit)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(hashes) != 2 {
		t.Errorf("the hashes are %v", hashes)
	}
}

// Errors name the library, or the key that is missing, and say whether another attempt may
// help.
func TestCustomOperatorsRefused(t *testing.T) {
	skipWithoutLibrary(t)
	library := fakeops.Build(t)
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := custom()
	other.parts.Nodes[1] = nodeProto("Treble", fakeops.Domain, list("a"), list("b"))
	fine := custom().write(t)
	for name, test := range map[string]struct {
		path, library string
		lasts         bool
		says          string
	}{
		"no key":           {fine, "", true, `"Double" of the domain "test.ops": custom operators need the library that has them: name it in op_libraries`},
		"no file":          {fine, text + ".gone", false, "no such file"},
		"no library":       {fine, text, true, text},
		"another library":  {fine, fakeops.Build(t, "NAMELESS"), true, "has no function RegisterCustomOps"},
		"a refusal":        {fine, fakeops.Build(t, "REFUSE"), true, "not today"},
		"a Python module":  {fine, fakeops.Build(t, "PYTHON"), true, "patchelf"},
		"another operator": {other.write(t), library, true, "nor a library of op_libraries has this operator"},
	} {
		spec := wire.LoadSpec{ModelPath: test.path, CacheDir: t.TempDir()}
		if test.library != "" {
			spec.OpLibraries = []string{test.library}
		}
		e, err := LoadONNX(spec, worker.Memory{}, nothing)
		if err == nil {
			e.Close()
			t.Errorf("%s: it was loaded", name)
			continue
		}
		if !strings.Contains(err.Error(), test.says) || errors.Is(err, wire.ErrModel) != test.lasts {
			t.Errorf("%s: got %v, want %q, lasting %t", name, err, test.says, test.lasts)
		}
	}
}
