package segments

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// nothing is a ProgressFunc.
func nothing(string, int64, int64) {}

// skipWithoutLibrary skips a test that opens the library itself.
func skipWithoutLibrary(t *testing.T) {
	t.Helper()
	if _, err := ort.Find(); err != nil {
		t.Skip(err)
	}
}

func loadTiny(t *testing.T, spec wire.LoadSpec) worker.Engine {
	t.Helper()
	e, err := LoadONNX(spec, worker.Memory{}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// TestLoadONNX loads a model as a worker does: warm, and the second time from
// the cache.
func TestLoadONNX(t *testing.T) {
	skipWithoutLibrary(t)
	spec := wire.LoadSpec{Service: "tiny", ModelPath: openZoo(t, "tiny_bert"), CacheDir: t.TempDir(), Threads: 1, MaxBatch: 4}
	for _, hit := range []bool{false, true} {
		t.Run(map[bool]string{false: "first", true: "from the cache"}[hit], func(t *testing.T) {
			e := loadTiny(t, spec)
			info := e.Info()
			if info.CacheHit != hit {
				t.Errorf("cache hit %t, expected %t", info.CacheHit, hit)
			}
			n := len(info.Operators)
			if n == 0 || info.Operators[0].LiveBytes <= 0 || info.ORTVersion == "" || info.Hash == "" || info.LoadNanos <= 0 {
				t.Errorf("%+v", info)
			}
			if len(info.Solo) != 2 || info.Solo[0].Size != 1 || info.Solo[1].Size != 4 || info.Solo[0].SeqLen != warmSeqLen {
				t.Fatalf("isolated latencies %+v", info.Solo)
			}
			for _, s := range info.Solo {
				if len(s.Nanos) != n {
					t.Errorf("%d isolated latencies of %d operators", len(s.Nanos), n)
				}
			}
		})
	}
}

// TestLoadONNXRefuses loads what cannot be served. The runtime is free again
// each time.
func TestLoadONNXRefuses(t *testing.T) {
	skipWithoutLibrary(t)
	sequence := newGraph()
	sequence.input("x", models.Float32, open, 2)
	sequence.node("SequenceConstruct", list("x"), list("s"))
	item := models.Type{Kind: models.KindTensor, Elem: models.Float32}
	sequence.parts.Outputs = append(sequence.parts.Outputs,
		models.AppendValueInfo(nil, "s", models.Type{Kind: models.KindSequence, Item: &item}))
	unknown := newGraph()
	unknown.input("x", models.Float32, 1)
	unknown.node("NoSuchOperator", list("x"), list("y"))
	unknown.output("y", models.Float32)
	for name, test := range map[string]struct {
		path string
		want error
	}{
		"no file":              {filepath.Join(t.TempDir(), "none.onnx"), os.ErrNotExist},
		"a sequence comes out": {sequence.write(t), ErrUnservable},
		"unknown operator":     {unknown.write(t), nil},
	} {
		e, err := LoadONNX(wire.LoadSpec{ModelPath: test.path, CacheDir: t.TempDir()}, worker.Memory{}, nothing)
		if err == nil {
			e.Close()
		}
		if err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %v, expected %v", name, err, test.want)
		}
	}
}

// TestDamagedCache loads a model whose optimized form was cut short.
func TestDamagedCache(t *testing.T) {
	env := openEnv(t)
	c := Config{Path: openZoo(t, "tiny_mlp"), CacheDir: t.TempDir()}
	openCut(t, env, c)
	cached, err := filepath.Glob(filepath.Join(c.CacheDir, "*"))
	if err != nil || len(cached) != 1 {
		t.Fatalf("%q in the cache: %v", cached, err)
	}
	info, err := os.Stat(cached[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(cached[0], info.Size()/2); err != nil {
		t.Fatal(err)
	}
	m := openCut(t, env, c)
	if m.loaded.cacheHit {
		t.Error("the damaged file was used")
	}
	if _, err := runAll(m, 1, queryOf(t, m, 1, 0)); err != nil {
		t.Error(err)
	}
}

// TestWarmNeedsPlainInputs warms models that zeros cannot be made for.
func TestWarmNeedsPlainInputs(t *testing.T) {
	g := newGraph()
	g.input("s", models.String, open)
	g.node("Identity", list("s"), list("y"))
	g.output("y", models.String)
	m := openCut(t, openEnv(t), Config{Path: g.write(t)})
	if _, err := m.Warm(1, 0, 0); !errors.Is(err, wire.ErrInput) {
		t.Errorf("strings: %v, expected %v", err, wire.ErrInput)
	}
	if _, _, err := zeroQuery(m.Model(), 1, warmSeqLen); !errors.Is(err, wire.ErrInput) {
		t.Errorf("a query of strings: %v", err)
	}
}

// TestWarmGivesMemoryBack makes up one input before it finds that it cannot make
// up the next.
func TestWarmGivesMemoryBack(t *testing.T) {
	g := newGraph()
	g.input("x", models.Float32, open, 1<<16)
	g.input("s", models.String, open)
	g.node("Identity", list("s"), list("y"))
	g.node("Relu", list("x"), list("z"))
	g.output("y", models.String)
	g.output("z", models.Float32)
	m := openCut(t, openEnv(t), Config{Path: g.write(t)})
	if q, _, err := zeroQuery(m.Model(), 1, warmSeqLen); !errors.Is(err, wire.ErrInput) || len(q.Inputs) != 1 || q.Inputs[0].Data != nil {
		t.Errorf("%v, %d inputs are kept", err, len(q.Inputs))
	}
}

// Loading a model shows its phases in their order, and each segment that it makes.
func TestProgressOfAModel(t *testing.T) {
	skipWithoutLibrary(t)
	spec := wire.LoadSpec{ModelPath: openZoo(t, "tiny_mlp"), CacheDir: t.TempDir(), MaxBatch: 4}
	told, totals := map[string]int64{}, map[string]int64{}
	var order []string
	engine, err := LoadONNX(spec, worker.Memory{}, func(phase string, done, total int64) {
		if _, ok := told[phase]; !ok {
			order = append(order, phase)
		}
		if done < told[phase] || done > total {
			t.Errorf("%s: step %d of %d after %d", phase, done, total, told[phase])
		}
		told[phase], totals[phase] = done, total
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
	if want := list("runtime", "read", "optimize", "cut", "load", "warm"); !slices.Equal(order, want) {
		t.Errorf("phases %q, want %q", order, want)
	}
	for _, phase := range list("read", "load") {
		if told[phase] != totals[phase] {
			t.Errorf("%s ends at %d of %d", phase, told[phase], totals[phase])
		}
	}
}
