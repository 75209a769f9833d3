package segments

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
)

// expectWhole runs a model cut into segments of several sizes, a few times
// each, on the CPU and on a device without a GPU, and expects what the whole
// model gives.
func expectWhole(t *testing.T, path string, queries ...wire.QueryTensors) {
	t.Helper()
	env := openEnv(t)
	w := openWhole(t, env, path)
	far, _ := openFakeGPU(t, env, fakeSpec{})
	for i, target := range []int{0, 1, 2, 0, 1, 2} {
		c := Config{Path: path, Target: target}
		if i >= 3 {
			c.Device = far
		}
		m := openCut(t, env, c)
		for run := range 3 {
			for _, q := range queries {
				want, err := w.run([]wire.QueryTensors{q})
				if err != nil {
					t.Fatal(err)
				}
				got, err := runAll(m, 1, q)
				if err != nil {
					t.Fatalf("target %d, run %d: %v", target, run, err)
				}
				if err := compare(got, want); err != nil {
					t.Errorf("target %d, run %d: %v", target, run, err)
				}
			}
		}
	}
}

func rows(t *testing.T, n int64) wire.QueryTensors {
	values := make([]float32, 4*n)
	for i := range values {
		values[i] = float32(i) - 3
	}
	q := query(t, floatView([]int64{n, 4}, values...))
	t.Cleanup(func() { thaw(q) })
	return q
}

// xGraph has one input x of rows of four.
func xGraph() *graph {
	g := newGraph()
	g.input("x", models.Float32, open, 4)
	return g
}

func TestZeroRows(t *testing.T) {
	g := xGraph()
	g.node("Relu", list("x"), list("a"))
	g.node("Add", list("a", "x"), list("b"))
	g.node("NonZero", list("b"), list("places"))
	g.output("b", models.Float32)
	g.output("places", models.Int64)
	expectWhole(t, g.write(t), rows(t, 0), rows(t, 2))
}

func TestOutputsMadeByNoOperator(t *testing.T) {
	g := xGraph()
	g.floats("constant", []int64{2}, 7, 8)
	g.floats("term", []int64{2}, 1, 2)
	g.node("Add", list("constant", "term"), list("folded"))
	g.node("Relu", list("x"), list("y"))
	g.output("x", models.Float32)
	g.output("constant", models.Float32)
	g.output("folded", models.Float32)
	g.output("y", models.Float32)
	expectWhole(t, g.write(t), rows(t, 1), rows(t, 2))
}

func TestNoInputs(t *testing.T) {
	g := newGraph()
	g.floats("a", []int64{2}, 1, 2)
	g.node("Relu", list("a"), list("b"))
	g.output("b", models.Float32)
	expectWhole(t, g.write(t), wire.QueryTensors{})
}

func TestViewsOfOutputs(t *testing.T) {
	g := xGraph()
	g.int64s("flat", -1)
	g.node("Tanh", list("x"), list("a"))
	g.node("Reshape", list("a", "flat"), list("b"))
	g.node("Identity", list("b"), list("c"))
	g.node("Neg", list("c"), list("d"))
	for _, name := range list("a", "b", "c", "d") {
		g.output(name, models.Float32)
	}
	expectWhole(t, g.write(t), rows(t, 1), rows(t, 3))
}

// TestOldFormat lists the weights as inputs, as files had to before version 4.
func TestOldFormat(t *testing.T) {
	g := xGraph()
	g.parts.IRVersion = 3
	g.parts.Opsets = [][]byte{opsetID("", 8)}
	g.floats("w", []int64{4}, 1, 2, 3, 4)
	g.input("w", models.Float32, 4)
	g.node("Mul", list("x", "w"), list("y"))
	g.output("y", models.Float32)
	path := g.write(t)
	m := openCut(t, openEnv(t), Config{Path: path})
	if n := len(m.Model().Inputs); n != 1 {
		t.Fatalf("%d inputs, expected 1", n)
	}
	got, err := runAll(m, 1, rows(t, 1))
	if want := floatBytes(-3, -4, -3, 0); err != nil || !slices.Equal(got[0][0].data, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestLoop(t *testing.T) {
	g := xGraph()
	g.int64s("trips", 3)
	g.weights("go on", models.Bool, []int64{}, []byte{1})
	g.floats("step", []int64{4}, 1, 2, 3, 4)
	g.node("Relu", list("x"), list("outer"))
	body := newGraph()
	body.input("i", models.Int64)
	body.input("condition", models.Bool)
	body.input("state", models.Float32, open, 4)
	body.node("Identity", list("condition"), list("next condition"))
	body.node("Add", list("state", "step"), list("stepped"))
	body.node("Add", list("stepped", "outer"), list("next state"))
	body.node("Identity", list("stepped"), list("scanned"))
	body.output("next condition", models.Bool)
	body.output("next state", models.Float32)
	body.output("scanned", models.Float32)
	g.node("Loop", list("trips", "go on", "x"), list("last", "all"), graphAttribute("body", body))
	g.node("Tanh", list("outer"), list("after"))
	for _, name := range list("last", "all", "after") {
		g.output(name, models.Float32)
	}
	expectWhole(t, g.write(t), rows(t, 1), rows(t, 2))
}

// TestFunction calls an operator that the model defines itself.
func TestFunction(t *testing.T) {
	g := xGraph()
	g.parts.Opsets = append(g.parts.Opsets, opsetID("own", 1))
	function := models.AppendString(nil, 1, "Twice")
	function = models.AppendString(function, 4, "a")
	function = models.AppendString(function, 5, "b")
	function = models.AppendField(function, 7, nodeProto("Relu", "", list("a"), list("c")))
	function = models.AppendField(function, 7, nodeProto("Add", "", list("c", "a"), list("b")))
	function = models.AppendField(function, 9, opsetID("", 17))
	function = models.AppendString(function, 10, "own")
	g.parts.Functions = append(g.parts.Functions, function)
	g.parts.Nodes = append(g.parts.Nodes, nodeProto("Twice", "own", list("x"), list("y")))
	g.node("Tanh", list("y"), list("z"))
	g.output("y", models.Float32)
	g.output("z", models.Float32)
	expectWhole(t, g.write(t), rows(t, 1))
}

func TestSparseInitializer(t *testing.T) {
	g := xGraph()
	two := binary.LittleEndian.AppendUint64(nil, 2)
	sparse := models.AppendField(nil, 1, tensorProto("w", models.Float32, []int64{1}, floatBytes(5)))
	sparse = models.AppendField(sparse, 2, tensorProto("", models.Int64, []int64{1}, two))
	sparse = models.AppendInt(sparse, 3, 4)
	g.parts.SparseInitializers = append(g.parts.SparseInitializers, sparse)
	g.node("Add", list("x", "w"), list("y"))
	g.output("y", models.Float32)
	expectWhole(t, g.write(t), rows(t, 2))
}

// TestExternalData keeps the weights in a file of their own.
func TestExternalData(t *testing.T) {
	g := xGraph()
	w := models.AppendInt(models.AppendInt(nil, 1, 4), 2, int64(models.Float32))
	w = models.AppendString(w, 8, "w")
	w = models.AppendField(w, 13, models.AppendString(models.AppendString(nil, 1, "location"), 2, "weights.bin"))
	w = models.AppendInt(w, 14, 1)
	g.parts.Initializers = append(g.parts.Initializers, w)
	g.node("Add", list("x", "w"), list("y"))
	g.output("y", models.Float32)
	path := g.write(t)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "weights.bin"), floatBytes(1, 2, 3, 4), 0o600); err != nil {
		t.Fatal(err)
	}
	expectWhole(t, path, rows(t, 2))
}

func TestBoolAndHalf(t *testing.T) {
	g := newGraph()
	g.input("choice", models.Bool, open, 2)
	g.input("h", models.Float16, open, 2)
	g.node("Not", list("choice"), list("other"))
	g.node("Neg", list("h"), list("negative"))
	g.node("Where", list("other", "h", "negative"), list("y"))
	g.output("other", models.Bool)
	g.output("y", models.Float16)
	q := query(t, models.Tensor{Type: models.Bool, Shape: []int64{2, 2}, Data: []byte{0, 1, 1, 0}},
		models.Tensor{Type: models.Float16, Shape: []int64{2, 2}, Data: []byte{0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44}})
	defer thaw(q)
	expectWhole(t, g.write(t), q)
}

// TestStrings gathers and splits tensors of strings.
func TestStrings(t *testing.T) {
	g := newGraph()
	g.input("s", models.String, open, 2)
	g.node("Identity", list("s"), list("a"))
	g.node("Identity", list("a"), list("b"))
	g.output("b", models.String)
	path, env := g.write(t), openEnv(t)
	far, _ := openFakeGPU(t, env, fakeSpec{})
	for name, device := range map[string]*gpu.Device{"CPU": nil, "GPU": far} {
		t.Run(name, func(t *testing.T) { checkStrings(t, openCut(t, env, Config{Path: path, Device: device})) })
	}
}

func checkStrings(t *testing.T, m *CutModel) {
	one := []byte("\x02\x00\x00\x00hi\x00\x00\x00\x00")
	two := []byte("\x01\x00\x00\x00a\x03\x00\x00\x00b\x00c\x00\x00\x00\x00\x01\x00\x00\x00d")
	a := wire.QueryTensors{Inputs: []models.Tensor{{Type: models.String, Shape: []int64{1, 2}, Data: one}}}
	b := wire.QueryTensors{Inputs: []models.Tensor{{Type: models.String, Shape: []int64{2, 2}, Data: two}}}
	for range 2 {
		got, err := runAll(m, 1, a, b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[0][0].data, one) || !slices.Equal(got[1][0].data, two) {
			t.Errorf("%q and %q, expected %q and %q", got[0][0].data, got[1][0].data, one, two)
		}
	}
	for _, bad := range list("", "\x02\x00\x00\x00hi", "\xff\x00\x00\x00hi\x00\x00\x00\x00", string(one)+"x") {
		q := wire.QueryTensors{Inputs: []models.Tensor{{Type: models.String, Shape: []int64{1, 2}, Data: []byte(bad)}}}
		if err := m.Start(1, []wire.QueryTensors{q}); err == nil {
			t.Errorf("%q was taken for two strings", bad)
		}
		if err := m.Start(1, []wire.QueryTensors{a, q}); err == nil {
			t.Errorf("%q was gathered as two strings", bad)
		}
	}
	if len(m.pool.batches) != 0 {
		t.Error("a refused batch was started")
	}
}

// TestValues runs a model whose input and output are sequences.
func TestValues(t *testing.T) {
	g := newGraph()
	item := tensorType(models.Float32, 2)
	sequence := models.Type{Kind: models.KindSequence, Item: &item}
	g.parts.Inputs = append(g.parts.Inputs, models.AppendValueInfo(nil, "s", sequence))
	g.weights("at", models.Int64, []int64{}, make([]byte, 8))
	g.node("SequenceAt", list("s", "at"), list("first"))
	g.node("Neg", list("first"), list("negative"))
	g.node("SequenceInsert", list("s", "negative"), list("longer"))
	g.parts.Outputs = append(g.parts.Outputs, models.AppendValueInfo(nil, "longer", sequence))
	path, env := g.write(t), openEnv(t)
	far, _ := openFakeGPU(t, env, fakeSpec{})
	for name, device := range map[string]*gpu.Device{"CPU": nil, "GPU": far} {
		t.Run(name, func(t *testing.T) { checkValues(t, env, openCut(t, env, Config{Path: path, Device: device})) })
	}
}

func checkValues(t *testing.T, env *ort.Env, m *CutModel) {
	if err := servable(m.Model()); err == nil {
		t.Error("a sequence passes for a tensor")
	}
	for n := 1; n <= 3; n++ {
		in := floatSequence(t, env, n)
		if err := m.StartValues(1, []*ort.Value{in}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Values(1); err == nil {
			t.Error("outputs of a batch that has not run")
		}
		if _, err := m.Run(1, 0, len(m.loaded.sessions), nil); err != nil {
			t.Fatal(err)
		}
		out, err := m.Values(1)
		if err != nil {
			t.Fatal(err)
		}
		expectItems(t, out[0], n)
		m.Release(1)
		in.Close()
	}
	if err := m.StartValues(1, nil); err == nil {
		t.Error("a batch without inputs was started")
	}
}

// floatSequence is [0, 1], [1, 2] and so on.
func floatSequence(t *testing.T, env *ort.Env, n int) *ort.Value {
	t.Helper()
	var items []*ort.Value
	for i := range n {
		v, err := env.NewTensor(models.Float32, []int64{2})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		data, err := v.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		copy(data, floatBytes(float32(i), float32(i+1)))
		items = append(items, v)
	}
	s, err := env.Sequence(items)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func expectItems(t *testing.T, v *ort.Value, n int) {
	t.Helper()
	items, err := v.Items()
	if err != nil || len(items) != n+1 {
		t.Fatalf("%d items: %v, expected %d", len(items), err, n+1)
	}
	data, err := items[n].Bytes()
	if negativeZero := floatBytes(float32(0)); err != nil || !slices.Equal(data[4:], floatBytes(-1)) {
		t.Errorf("the last item is %x: %v, expected %x", data, err, negativeZero)
	}
	for _, item := range items {
		item.Close()
	}
}
