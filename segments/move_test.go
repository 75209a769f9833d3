package segments

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// moves is memory of a test in which values lie on their way, which it tells them.
func moves(t failer, values []models.Tensor) (memory []byte) {
	t.Helper()
	bytes, err := wire.Place(values, 1<<30)
	if err != nil {
		t.Errorf("%v", err)
	}
	memory, err = wire.MapPrivate(max(bytes, 1), "of a test")
	if err != nil {
		t.Errorf("%v", err)
	}
	for i := range values {
		if !wire.Find(&values[i], memory) {
			t.Errorf("value %d lies outside", i)
		}
	}
	return memory
}

// move takes a batch from an engine to another, as their workers do, and returns what
// gives the memory back that it reads from then on.
func move(t failer, from, to *CutModel, id models.BatchID, queries []wire.QueryTensors) (free func(), err error) {
	t.Helper()
	at := from.pool.batches[id].next
	values, cut, err := from.Describe(id)
	if err != nil {
		return func() {}, err
	}
	memory := moves(t, values)
	free = func() { wire.Unmap(memory) }
	if err := from.Export(id, values); err != nil {
		return free, err
	}
	copied, err := to.Import(id, at, queries, cut, values)
	if copied {
		for i := range memory {
			memory[i] = 0xff // nobody reads it any more
		}
	}
	return free, err
}

// runMoved runs a batch that moves at an operator, and expects what was given.
func runMoved(t failer, from, to *CutModel, at int, queries []wire.QueryTensors, want collect) error {
	t.Helper()
	if err := from.Start(1, queries); err != nil {
		return err
	}
	if _, err := from.Run(1, 0, at, nil); err != nil {
		return err
	}
	free, err := move(t, from, to, 1, queries)
	defer free()
	if err != nil {
		return err
	}
	defer to.Release(1)
	if len(from.pool.batches) != 0 {
		return fmt.Errorf("%d batches are left", len(from.pool.batches))
	}
	if _, err := to.Run(1, at, len(to.loaded.sessions), nil); err != nil {
		return err
	}
	var got collect
	if err := to.Finish(1, got.take); err != nil {
		return err
	}
	return compare(got, want)
}

// expectMoves moves batches at every operator, between engines on the CPU and on a device
// without a GPU, more often than it takes to learn layouts and to use frames again.
func expectMoves(t *testing.T, env *ort.Env, path string, batches ...[]wire.QueryTensors) {
	t.Helper()
	gpu, fake := openFakeGPU(t, env, fakeSpec{})
	w := openWhole(t, env, path)
	near, other := openCut(t, env, Config{Path: path, Units: 2}), openCut(t, env, Config{Path: path})
	far := openCut(t, env, Config{Path: path, Device: gpu})
	fake.random = rand.New(rand.NewPCG(3, 4))
	mixed := openCut(t, env, Config{Path: path, Device: gpu}) // with values at home on the host
	for name, pair := range map[string][2]*CutModel{
		"CPU": {near, other}, "to GPU": {near, far}, "from GPU": {far, near}, "to mixed": {other, mixed}, "from mixed": {mixed, other},
	} {
		for at := 1; at < len(near.loaded.sessions); at++ {
			for run := range 3 {
				for i, queries := range batches {
					want, err := w.run(queries)
					if err == nil {
						err = runMoved(t, pair[0], pair[1], at, queries, want)
					}
					if err != nil {
						t.Errorf("%s: batch %d, run %d, at operator %d: %v", name, i, run, at, err)
					}
				}
			}
		}
	}
}

func TestMovesOfZoo(t *testing.T) {
	for _, name := range list("tiny_mlp", "tiny_cnn", "tiny_bert") {
		t.Run(name, func(t *testing.T) {
			env := openEnv(t)
			m, path := openTinyIn(t, env, name)
			r := rand.New(rand.NewPCG(1, 2))
			a, b := randomQuery(t, m.Model(), 1, 16, r), randomQuery(t, m.Model(), 2, 16, r)
			t.Cleanup(func() { thaw(a); thaw(b) })
			expectMoves(t, env, path, []wire.QueryTensors{a}, []wire.QueryTensors{a, b}, []wire.QueryTensors{b})
		})
	}
}

// Several values are alive at once: branches, an output that is made early and read
// later, an input that is read late, views, and a shape that data decide about.
func TestMovesOfBranches(t *testing.T) {
	g := xGraph()
	g.input("late", models.Float32, open, 4)
	g.int64s("flat", -1)
	g.node("Tanh", list("x"), list("a"))
	g.node("Neg", list("x"), list("b"))
	g.node("Relu", list("a"), list("early"))
	g.node("Reshape", list("b", "flat"), list("view"))
	g.node("NonZero", list("early"), list("places"))
	g.node("Sigmoid", list("b"), list("c"))
	g.node("Add", list("a", "c"), list("d"))
	g.node("Mul", list("d", "late"), list("e"))
	g.node("Add", list("e", "early"), list("f"))
	g.node("Abs", list("view"), list("h"))
	for _, name := range list("early", "f") {
		g.output(name, models.Float32)
	}
	g.output("places", models.Int64)
	g.output("h", models.Float32)
	q := func(n int64, sign float32) wire.QueryTensors {
		values := make([]float32, 4*n)
		for i := range values {
			values[i] = (float32(i) - 3) * sign
		}
		q := query(t, floatView([]int64{n, 4}, values...), floatView([]int64{n, 4}, values...))
		t.Cleanup(func() { thaw(q) })
		return q
	}
	expectMoves(t, openEnv(t), g.write(t), []wire.QueryTensors{q(1, 1)}, []wire.QueryTensors{q(3, 1)}, []wire.QueryTensors{q(3, -1)}, []wire.QueryTensors{q(0, 1)})
}

// Strings, including empty ones, are written one after another and created again.
func TestMovesOfStrings(t *testing.T) {
	g := newGraph()
	g.input("text", models.String, open, 2)
	g.input("x", models.Float32, open, 2)
	g.node("Identity", list("text"), list("a"))
	g.node("Neg", list("x"), list("b"))
	g.node("Identity", list("a"), list("c"))
	g.node("Abs", list("b"), list("d"))
	for _, name := range list("a", "c") {
		g.output(name, models.String)
	}
	g.output("d", models.Float32)
	env := openEnv(t)
	path := g.write(t)
	from, to := openCut(t, env, Config{Path: path}), openCut(t, env, Config{Path: path})
	device, _ := openFakeGPU(t, env, fakeSpec{})
	far := openCut(t, env, Config{Path: path, Device: device})
	texts := func(all ...string) wire.QueryTensors {
		var bytes [][]byte
		for _, s := range all {
			bytes = append(bytes, []byte(s))
		}
		data := make([]byte, stringsBytes(bytes))
		putStrings(data, bytes)
		n := int64(len(all) / 2)
		q := query(t, models.Tensor{Type: models.String, Shape: []int64{n, 2}, Data: data}, floatView([]int64{n, 2}, make([]float32, 2*n)...))
		t.Cleanup(func() { thaw(q) })
		return q
	}
	one, two := texts("", "a longer text"), texts("x", "", "y\x00z", strings.Repeat("w", 5000))
	for _, queries := range [][]wire.QueryTensors{{one}, {one, two}, {two}, {texts()}} {
		want, err := runAll(from, 9, queries...)
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range [][2]*CutModel{{from, to}, {from, far}, {far, to}} {
			for at := 1; at < len(from.loaded.sessions); at++ {
				for run := range 2 {
					if err := runMoved(t, pair[0], pair[1], at, queries, want); err != nil {
						t.Errorf("%d queries, run %d, at operator %d: %v", len(queries), run, at, err)
					}
				}
			}
		}
	}
}

// A sequence is no tensor: the batch is lost, and the error says where.
func TestMoveOfASequence(t *testing.T) {
	g := xGraph()
	g.int64s("one", 1)
	g.node("Neg", list("x"), list("a"))
	g.node("SequenceConstruct", list("a", "x"), list("s"))
	g.node("SequenceAt", list("s", "one"), list("y"))
	g.output("y", models.Float32)
	env := openEnv(t)
	m := openCut(t, env, Config{Path: g.write(t)})
	q := rows(t, 1)
	if err := m.Start(1, []wire.QueryTensors{q}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(1, 0, 2, nil); err != nil {
		t.Fatal(err)
	}
	_, _, err := m.Describe(1)
	if !errors.Is(err, wire.ErrMove) || !strings.Contains(err.Error(), `"s"`) || !strings.Contains(err.Error(), "operator 2") {
		t.Errorf("%v", err)
	}
	m.Release(1)
}

// Import trusts nothing that another engine reports about a batch: if types, shapes and sizes
// are not those of the model, there is no batch.
func TestImportRefuses(t *testing.T) {
	env := openEnv(t)
	m, path := openTinyIn(t, env, "tiny_cnn")
	from := openCut(t, env, Config{Path: path})
	device, _ := openFakeGPU(t, env, fakeSpec{})
	far := openCut(t, env, Config{Path: path, Device: device})
	coarse := openCut(t, env, Config{Path: path, Target: 3})
	q := []wire.QueryTensors{queryOf(t, m, 2, 0)}
	if _, err := runAll(from, 1, q...); err != nil {
		t.Fatal(err)
	}
	at := len(from.loaded.sessions) / 2
	if err := from.Start(1, q); err != nil {
		t.Fatal(err)
	}
	defer from.Release(1)
	if _, err := from.Run(1, 0, at, nil); err != nil {
		t.Fatal(err)
	}
	list, cut, err := from.Describe(1)
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	good := func() (values []models.Tensor) {
		for _, v := range list {
			values = append(values, models.Tensor{Type: v.Type, Shape: slices.Clone(v.Shape), Data: make([]byte, v.Bytes)})
		}
		return values
	}
	for name, c := range map[string]struct {
		cut    uint64
		change func(values []models.Tensor) []models.Tensor
	}{
		"another cut":    {cut + 1, func(v []models.Tensor) []models.Tensor { return v }},
		"too few":        {cut, func(v []models.Tensor) []models.Tensor { return v[1:] }},
		"too many":       {cut, func(v []models.Tensor) []models.Tensor { return append(v, v...) }},
		"another type":   {cut, func(v []models.Tensor) []models.Tensor { v[0].Type = models.Int32; return v }},
		"no such shape":  {cut, func(v []models.Tensor) []models.Tensor { v[0].Shape[0] = -1; return v }},
		"an endless one": {cut, func(v []models.Tensor) []models.Tensor { v[0].Shape[0] = 1 << 62; return v }},
		"too few bytes":  {cut, func(v []models.Tensor) []models.Tensor { v[0].Data = v[0].Data[4:]; return v }},
	} {
		for _, to := range []*CutModel{m, far} {
			if _, err := to.Import(2, at, q, c.cut, c.change(good())); !errors.Is(err, wire.ErrMove) || len(to.pool.batches) != 0 {
				t.Errorf("%s: %v, %d batches", name, err, len(to.pool.batches))
			}
		}
	}
	if _, err := coarse.Import(2, 1, q, cut, good()); !errors.Is(err, wire.ErrMove) || !strings.Contains(err.Error(), "cut the model differently") {
		t.Errorf("into a coarser cut: %v", err)
	}
	if _, err := from.Import(1, at, q, cut, good()); !errors.Is(err, wire.ErrBatchExists) {
		t.Errorf("twice: %v", err)
	}
	if _, err := m.Import(2, at, []wire.QueryTensors{{}}, cut, good()); !errors.Is(err, wire.ErrInput) {
		t.Errorf("without inputs: %v", err)
	}
	if err := from.Export(1, nil); !errors.Is(err, wire.ErrMove) || len(from.pool.batches) != 0 {
		t.Errorf("exported to nowhere: %v", err)
	}
	if err := from.Export(1, nil); !errors.Is(err, wire.ErrUnknownBatch) {
		t.Errorf("exported twice: %v", err)
	}
}

// A shape that the inputs do not lead to fails its batch at most: what is learned of it
// is taken for no other batch.
func TestImportOfAnotherSize(t *testing.T) {
	env := openEnv(t)
	m, path := openTinyIn(t, env, "tiny_cnn")
	to := openCut(t, env, Config{Path: path})
	device, _ := openFakeGPU(t, env, fakeSpec{})
	far := openCut(t, env, Config{Path: path, Device: device})
	one, two := []wire.QueryTensors{queryOf(t, m, 1, 0)}, []wire.QueryTensors{queryOf(t, m, 2, 0)}
	want, err := runAll(m, 5, one...)
	if err != nil {
		t.Fatal(err)
	}
	at := len(m.loaded.sessions) / 2
	for range 3 {
		for _, into := range []*CutModel{to, far} {
			if err := m.Start(1, two); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Run(1, 0, at, nil); err != nil {
				t.Fatal(err)
			}
			free, err := move(t, m, into, 1, one) // whose values are of two
			if err == nil {
				_, _ = into.Run(1, at, len(into.loaded.sessions), nil)
			}
			into.Release(1)
			free()
			if err := runMoved(t, m, into, at, one, want); err != nil {
				t.Error(err)
			}
		}
	}
}

// A batch comes into the budget as one that starts does, and what is kept for later ones
// makes room.
func TestImportWithinBudget(t *testing.T) {
	env := openEnv(t)
	m, path := openTinyIn(t, env, "tiny_cnn")
	to := openCut(t, env, Config{Path: path})
	q := []wire.QueryTensors{queryOf(t, m, 16, 0)}
	want, err := runAll(m, 5, q...)
	for at := 1; at < 3 && err == nil; at++ { // what two operators teach is kept
		for range 2 {
			err = errors.Join(err, runMoved(t, m, to, at, q, want))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	to.pool.budget = to.IntermediateBytes()
	for at := 3; at < len(m.loaded.sessions); at++ {
		if err := runMoved(t, m, to, at, q, want); err != nil {
			t.Errorf("with nothing but idle frames in the way, at operator %d: %v", at, err)
		}
	}
	to.pool.budget = 1
	if err := runMoved(t, m, to, 1, q, want); !errors.Is(err, wire.ErrMemory) || len(to.pool.batches) != 0 {
		t.Errorf("%d batches, %v", len(to.pool.batches), err)
	}
}

// A driver that fails while a batch moves ends its worker, and leaves nothing behind.
func TestGPUFaultsOfMoves(t *testing.T) {
	far, w := openGPU(t, "tiny_mlp", Config{}, fakeSpec{})
	near, _ := openTinyIn(t, far.loaded.env, "tiny_mlp")
	q := []wire.QueryTensors{queryOf(t, far, 2, 0)}
	want, err := w.run(q)
	if err != nil {
		t.Fatal(err)
	}
	at := len(far.loaded.sessions) / 2
	for name, c := range map[string]struct {
		from, to *CutModel
		call     int
		nth      uint64 // after what a batch needs to start and to run
		want     error
	}{
		"copy out": {far, near, fakedriver.CallCopyOut, 1, wire.ErrDeviceLost},
		"wait":     {far, near, fakedriver.CallEventQuery, 3, wire.ErrDeviceLost},
		"copy in":  {near, far, fakedriver.CallCopyIn, 1, wire.ErrDeviceLost},
		"settle":   {near, far, fakedriver.CallEventQuery, 1, wire.ErrDeviceLost},
		"memory":   {near, far, fakedriver.CallAlloc, 1, wire.ErrDeviceMemory},
	} {
		far.pool.closeAllIdle() // so that memory is wanted
		result := driver.Result(806)
		if c.want == wire.ErrDeviceMemory {
			result = driver.OutOfMemory
		}
		failCall(t, c.call, c.nth, result)
		if err := runMoved(t, c.from, c.to, at, q, want); !errors.Is(err, c.want) || !wire.Ends(err) || len(far.pool.batches)+len(near.pool.batches) != 0 {
			t.Errorf("%s: %d and %d batches, %v", name, len(far.pool.batches), len(near.pool.batches), err)
		}
		fakeDriver.Fail(c.call, 0, 0)
		fakePage[fakedriver.Sticky] = 0
		if err := runMoved(t, c.from, c.to, at, q, want); err != nil {
			t.Errorf("%s, afterwards: %v", name, err)
		}
	}
}

// What a batch from elsewhere teaches says nothing of whole batches.
func TestMovesTeachNothingOfWholes(t *testing.T) {
	env := openEnv(t)
	m, path := openTinyIn(t, env, "tiny_cnn")
	to := openCut(t, env, Config{Path: path})
	one, two := []wire.QueryTensors{queryOf(t, m, 1, 0)}, []wire.QueryTensors{queryOf(t, m, 2, 0)}
	at := len(m.loaded.sessions) / 2
	for _, q := range [][]wire.QueryTensors{one, two} {
		want, err := runAll(m, 5, q...)
		if err := errors.Join(err, runMoved(t, m, to, at, q, want)); err != nil {
			t.Fatal(err)
		}
	}
	if to.LiveBytes(1) != nil || to.LiveBytes(2) != nil || to.Model().Operators[at].LiveBytes != -1 {
		t.Errorf("%v, %v, %+v", to.LiveBytes(1), to.LiveBytes(2), to.Model().Operators[at])
	}
}

// Of the inputs only those go to a device that operators still read, and what lies there is
// counted for as long as it does.
func TestImportCopiesWhatIsRead(t *testing.T) {
	g := xGraph()
	g.input("early", models.Float32, open, 4)
	g.input("late", models.Float32, open, 4)
	g.node("Add", list("x", "early"), list("a"))
	g.node("Neg", list("a"), list("b"))
	g.node("Abs", list("b"), list("c"))
	g.node("Mul", list("c", "late"), list("y"))
	g.output("y", models.Float32)
	env := openEnv(t)
	path := g.write(t)
	device, _ := openFakeGPU(t, env, fakeSpec{})
	from, far := openCut(t, env, Config{Path: path}), openCut(t, env, Config{Path: path, Device: device})
	rows := floatView([]int64{2, 4}, 1, 2, 3, 4, 5, 6, 7, 8)
	q := []wire.QueryTensors{query(t, rows, rows, rows)}
	t.Cleanup(func() { thaw(q[0]) })
	for run := range 3 {
		if err := from.Start(1, q); err != nil {
			t.Fatal(err)
		}
		if _, err := from.Run(1, 0, 1, nil); err != nil {
			t.Fatal(err)
		}
		free := func() {}
		copies := counted(func() {
			var err error
			if free, err = move(t, from, far, 1, q); err != nil {
				t.Fatal(err)
			}
		}, fakedriver.CopiesIn)[0]
		if copies != 2 { // the value, and the input that is read late
			t.Errorf("run %d: %d copies to the device", run, copies)
		}
		free()
		for at := 1; at < len(far.loaded.sessions); at++ {
			if _, err := far.Run(1, at, at+1, nil); err != nil {
				t.Fatal(err)
			}
			lies := far.pool.batches[1].frame.looseBytes()
			for _, r := range far.pool.batches[1].regions {
				lies += r.bytes
			}
			if n := far.pool.batches[1].bytes; n < lies {
				t.Errorf("run %d, operator %d: %d bytes are counted, %d lie on the device", run, at, n, lies)
			}
		}
		far.Release(1)
	}
}

// TestMovesOfRandomModels moves batches of random models at every operator, unless
// something that is no tensor is alive there.
func TestMovesOfRandomModels(t *testing.T) {
	env := openEnv(t)
	rapid.Check(t, func(rt *rapid.T) {
		g, steps := drawGraph(rt)
		path := g.write(t)
		open := func(c Config) *CutModel {
			c.Path, c.CacheDir = path, t.TempDir()
			m, err := OpenModel(env, c)
			if err != nil {
				rt.Fatalf("%s: %v", steps, err)
			}
			return m
		}
		device, fake, err := newFakeGPU(env, fakeSpec{})
		if err != nil {
			rt.Fatal(err)
		}
		defer closeFakeGPU(rt, device)
		if rapid.Bool().Draw(rt, "host") {
			fake.random = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "homes"), 0))
		}
		target := rapid.IntRange(0, 6).Draw(rt, "target")
		near, other, far := open(Config{Target: target}), open(Config{Target: target}), open(Config{Target: target, Device: device})
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "data"), 0))
		var queries []wire.QueryTensors
		for range rapid.IntRange(1, maxTestQueries).Draw(rt, "queries") {
			queries = append(queries, randomQuery(rt, near.Model(), rapid.Int64Range(1, maxTestSize).Draw(rt, "size"), 0, r))
		}
		defer func() {
			for _, m := range []*CutModel{near, other, far} {
				closeCut(rt, m)
			}
			for _, q := range queries {
				thaw(q)
			}
		}()
		want, err := runAll(near, 9, queries...)
		if err != nil {
			rt.Fatal(err)
		}
		for _, pair := range [][2]*CutModel{{near, other}, {near, far}, {far, near}} {
			for at := 1; at < len(near.loaded.sessions); at++ {
				for range 2 {
					if err := runMoved(rt, pair[0], pair[1], at, queries, want); errors.Is(err, wire.ErrMove) && strings.Contains(err.Error(), "is not a tensor") {
						pair[0].Release(1)
					} else if err != nil {
						rt.Fatalf("%s: at operator %d: %v", steps, at, err)
					}
				}
			}
		}
	})
}
