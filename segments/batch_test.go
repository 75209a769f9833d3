package segments

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// openTiny opens a model of the zoo, and the same model uncut.
func openTiny(t testing.TB, name string, c Config) (*CutModel, *whole) {
	t.Helper()
	env := openEnv(t)
	c.Path = openZoo(t, name)
	return openCut(t, env, c), openWhole(t, env, c.Path)
}

func queryOf(t testing.TB, m *CutModel, size, seqLen int64) wire.QueryTensors {
	t.Helper()
	q := randomQuery(t, m.Model(), size, seqLen, rand.New(rand.NewPCG(uint64(size), uint64(seqLen))))
	t.Cleanup(func() { thaw(q) })
	return q
}

// TestStopAndResume stops a batch at every operator boundary.
func TestStopAndResume(t *testing.T) {
	m, w := openTiny(t, "tiny_cnn", Config{})
	q := queryOf(t, m, 2, 0)
	want, err := w.run([]wire.QueryTensors{q})
	if err != nil {
		t.Fatal(err)
	}
	end := len(m.Model().Operators)
	for round := range 2 { // the first run learns, the second is planned
		if err := m.Start(1, []wire.QueryTensors{q}); err != nil {
			t.Fatal(err)
		}
		stop := uint32(1)
		for at := range end {
			if reached, err := m.Run(1, at, end, &stop); err != nil || reached != at {
				t.Fatalf("round %d: stopped at operator %d: %v, expected %d", round, reached, err, at)
			}
			if reached, err := m.Run(1, at, at+1, nil); err != nil || reached != at+1 {
				t.Fatalf("round %d: reached %d: %v, expected %d", round, reached, err, at+1)
			}
		}
		var got collect
		if err := errors.Join(m.Finish(1, got.take), compare(got, want)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// TestBudget exceeds the budget in the run that learns, by frames of several
// batches, and by what ONNX Runtime allocates.
func TestBudget(t *testing.T) {
	m, w := openTiny(t, "tiny_cnn", Config{})
	small, large := queryOf(t, m, 1, 0), queryOf(t, m, 16, 0)
	works := func() {
		t.Helper()
		got, err := runAll(m, 100, small)
		if err != nil {
			t.Fatal(err)
		}
		want, err := w.run([]wire.QueryTensors{small})
		if err = errors.Join(err, compare(got, want)); err != nil {
			t.Fatal(err)
		}
	}
	works()
	works()
	frame := m.IntermediateBytes()
	if frame == 0 {
		t.Fatal("a frame without bytes")
	}
	m.pool.budget = 2 * frame
	if _, err := runAll(m, 1, large); !errors.Is(err, wire.ErrMemory) {
		t.Fatalf("a batch of 16 with the budget of two: %v", err)
	}
	works()
	for id, want := range []error{nil, nil, wire.ErrMemory} {
		if err := m.Start(models.BatchID(id), []wire.QueryTensors{small}); !errors.Is(err, want) {
			t.Fatalf("batch %d: %v, expected %v", id, err, want)
		}
	}
	if n := m.IntermediateBytes(); n != 2*frame {
		t.Errorf("%d bytes in two frames of %d", n, frame)
	}
	m.Release(1)
	works()
	m.Release(0)
	if n := len(m.pool.batches); n != 0 {
		t.Errorf("%d batches are left", n)
	}
}

// TestIdleFramesMakeRoom lets a batch learn in memory that idle frames hold.
func TestIdleFramesMakeRoom(t *testing.T) {
	m, _ := openTiny(t, "tiny_cnn", Config{})
	one, two := queryOf(t, m, 1, 0), queryOf(t, m, 2, 0)
	for range 2 {
		if _, err := runAll(m, 1, two); err != nil {
			t.Fatal(err)
		}
	}
	m.pool.budget = m.IntermediateBytes()
	if _, err := runAll(m, 1, one); err != nil {
		t.Errorf("with nothing but idle frames in the way: %v", err)
	}
}

func TestRefusedInputs(t *testing.T) {
	m, _ := openTiny(t, "tiny_mlp", Config{})
	row := make([]float32, 16)
	good := floatView([]int64{1, 16}, row...)
	for name, queries := range map[string][]wire.QueryTensors{
		"no query":            {},
		"no inputs":           {{}},
		"too many inputs":     {{Inputs: []models.Tensor{good, good}}},
		"another type":        {{Inputs: []models.Tensor{{Type: models.Int32, Shape: []int64{1, 16}, Data: good.Data}}}},
		"another rank":        {{Inputs: []models.Tensor{floatView([]int64{16}, row...)}}},
		"another fixed size":  {{Inputs: []models.Tensor{floatView([]int64{2, 8}, row...)}}},
		"too few bytes":       {{Inputs: []models.Tensor{floatView([]int64{1, 16}, row[1:]...)}}},
		"a negative size":     {{Inputs: []models.Tensor{floatView([]int64{-1, 16}, row...)}}},
		"a size out of hand":  {{Inputs: []models.Tensor{{Type: models.Float32, Shape: []int64{1 << 62, 16}, Data: nil}}}},
		"the second is wrong": {{Inputs: []models.Tensor{good}}, {Inputs: []models.Tensor{floatView([]int64{2, 8}, row...)}}},
	} {
		if err := m.Start(1, queries); !errors.Is(err, wire.ErrInput) {
			t.Errorf("%s: %v, expected %v", name, err, wire.ErrInput)
		}
	}
	if len(m.pool.batches) != 0 {
		t.Error("a refused batch was started")
	}
}

// TestMergeNeedsBatchDimension refuses to gather what is not a list of rows.
func TestMergeNeedsBatchDimension(t *testing.T) {
	g := newGraph()
	g.input("x", models.Float32, open, 2)
	g.input("scale", models.Float32, 1)
	g.node("Mul", list("x", "scale"), list("y"))
	g.output("y", models.Float32)
	m := openCut(t, openEnv(t), Config{Path: g.write(t)})
	q := query(t, floatView([]int64{2, 2}, 1, 2, 3, 4), floatView([]int64{1}, 2))
	defer thaw(q)
	if err := m.Start(1, []wire.QueryTensors{q, q}); !errors.Is(err, wire.ErrInput) {
		t.Errorf("two queries with a scale each: %v, expected %v", err, wire.ErrInput)
	}
	got, err := runAll(m, 1, q)
	if want := floatBytes(2, 4, 6, 8); err != nil || !slices.Equal(got[0][0].data, want) {
		t.Errorf("one query: %v, %v", got, err)
	}
}

// TestUnsplittableOutput runs two queries whose output has no batch dimension.
func TestUnsplittableOutput(t *testing.T) {
	g := newGraph()
	g.input("x", models.Float32, open, 2)
	g.node("ReduceSum", list("x"), list("y"), intAttribute("keepdims", 0))
	g.output("y", models.Float32)
	m := openCut(t, openEnv(t), Config{Path: g.write(t)})
	q := query(t, floatView([]int64{1, 2}, 1, 2))
	defer thaw(q)
	for range 2 {
		if _, err := runAll(m, 1, q, q); !errors.Is(err, wire.ErrOutput) {
			t.Errorf("two queries: %v, expected %v", err, wire.ErrOutput)
		}
		if got, err := runAll(m, 1, q); err != nil || !slices.Equal(got[0][0].data, floatBytes(3)) {
			t.Errorf("one query: %v, %v", got, err)
		}
	}
}

// TestFailingOutputFunc loses the batch and nothing else.
func TestFailingOutputFunc(t *testing.T) {
	m, _ := openTiny(t, "tiny_mlp", Config{})
	q := queryOf(t, m, 1, 0)
	full := errors.New("full")
	if err := m.Start(1, []wire.QueryTensors{q}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(1, 0, len(m.loaded.sessions), nil); err != nil {
		t.Fatal(err)
	}
	err := m.Finish(1, func(int, int, models.DataType, []int64, int64) ([]byte, error) { return nil, full })
	if !errors.Is(err, full) || len(m.pool.batches) != 0 {
		t.Errorf("%v with %d batches left", err, len(m.pool.batches))
	}
	if err := m.Finish(1, nil); !errors.Is(err, wire.ErrUnknownBatch) {
		t.Errorf("second Finish: %v", err)
	}
	if _, err := runAll(m, 1, q); err != nil {
		t.Error(err)
	}
}

// TestFailingOperator gathers what is not there in the middle of a model.
func TestFailingOperator(t *testing.T) {
	g := newGraph()
	g.input("x", models.Float32, open, 2)
	g.input("index", models.Int64, open)
	g.node("Relu", list("x"), list("a"))
	g.node("Gather", list("a", "index"), list("b"), intAttribute("axis", 1))
	g.node("Tanh", list("b"), list("y"))
	g.output("y", models.Float32)
	m := openCut(t, openEnv(t), Config{Path: g.write(t)})
	index := func(i byte) models.Tensor {
		return models.Tensor{Type: models.Int64, Shape: []int64{1}, Data: []byte{i, 0, 0, 0, 0, 0, 0, 0}}
	}
	x := floatView([]int64{1, 2}, 1, 2)
	good, bad := query(t, x, index(1)), query(t, x, index(9))
	defer thaw(good)
	defer thaw(bad)
	for round := range 3 { // a bad index while learning and while planned
		if _, err := runAll(m, 1, bad); err == nil || len(m.pool.batches) != 0 {
			t.Errorf("round %d: index 9 of 2: %v, %d batches left", round, err, len(m.pool.batches))
		}
		if _, err := runAll(m, 1, good); err != nil {
			t.Errorf("round %d: index 1 of 2: %v", round, err)
		}
	}
}

// TestForgottenLayouts uses more shapes than the engine remembers, while a
// batch of the first is paused.
func TestForgottenLayouts(t *testing.T) {
	g := newGraph()
	g.input("x", models.Float32, open, open)
	g.node("Relu", list("x"), list("a"))
	g.node("Softmax", list("a"), list("y"))
	g.output("y", models.Float32)
	env := openEnv(t)
	path := g.write(t)
	m, w := openCut(t, env, Config{Path: path}), openWhole(t, env, path)
	first := queryOf(t, m, 1, 1)
	if _, err := runAll(m, 1, first); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(1, []wire.QueryTensors{first}); err != nil {
		t.Fatal(err)
	}
	for n := range int64(maxLayouts + 5) {
		q := randomQuery(t, m.Model(), 1, n+2, rand.New(rand.NewPCG(1, 1)))
		for range 2 {
			if _, err := runAll(m, 2, q); err != nil {
				t.Fatal(err)
			}
		}
		thaw(q)
	}
	if len(m.pool.layouts) > maxLayouts || len(m.pool.idle) > maxIdleFrames {
		t.Errorf("%d layouts and %d idle frames are kept", len(m.pool.layouts), len(m.pool.idle))
	}
	if _, err := m.Run(1, 0, len(m.loaded.sessions), nil); err != nil {
		t.Fatal(err)
	}
	var got collect
	err := m.Finish(1, got.take)
	want, wholeErr := w.run([]wire.QueryTensors{first})
	if err := errors.Join(err, wholeErr, compare(got, want)); err != nil {
		t.Error(err)
	}
	for _, f := range m.pool.idle {
		if !remembered(m, f.layout) {
			t.Error("a frame of a forgotten layout is kept")
		}
	}
}

func remembered(m *CutModel, l *layout) bool {
	for _, entry := range m.pool.layouts {
		if entry == l {
			return true
		}
	}
	return false
}
