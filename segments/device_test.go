package segments

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/internal/fakes/fakedriver"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// openGPU opens a model of the zoo on a device without a GPU, and the whole of
// it beside.
func openGPU(t testing.TB, name string, c Config, spec fakeSpec) (*CutModel, *whole) {
	t.Helper()
	env := openEnv(t)
	path := openZoo(t, name)
	c.Path = path
	c.Device, _ = openFakeGPU(t, env, spec)
	return openCut(t, env, c), openWhole(t, env, path)
}

// counted returns by how much some words of the fake driver rise while f runs.
func counted(f func(), words ...int) []uint64 {
	before := slices.Clone(fakePage)
	f()
	var rises []uint64
	for _, w := range words {
		rises = append(rises, fakePage[w]-before[w])
	}
	return rises
}

func TestGPUModels(t *testing.T) {
	for _, name := range list("tiny_add", "tiny_identity", "tiny_mlp", "tiny_cnn", "tiny_bert") {
		for _, target := range []int{0, 3} {
			t.Run(fmt.Sprint(name, target), func(t *testing.T) {
				m, w := openGPU(t, name, Config{Target: target}, fakeSpec{})
				r := rand.New(rand.NewPCG(1, 2))
				a, b := randomQuery(t, m.Model(), 1, 16, r), randomQuery(t, m.Model(), 2, 16, r)
				defer thaw(a)
				defer thaw(b)
				for _, queries := range [][]wire.QueryTensors{{a}, {b}, {a, b}, {b, a}, {a}} {
					expectRun(t, m, w, queries)
				}
			})
		}
	}
}

// expectRun runs a batch and expects what the whole model gives.
func expectRun(t *testing.T, m *CutModel, w *whole, queries []wire.QueryTensors) {
	t.Helper()
	want, err := w.run(queries)
	if err != nil {
		t.Fatal(err)
	}
	got, err := runAll(m, 1, queries...)
	if err == nil {
		err = compare(got, want)
	}
	if err != nil {
		t.Errorf("%d queries: %v", len(queries), err)
	}
}

// TestGPUCopies counts copies and waits: each input goes to the device once,
// each output comes back once, and each span ends with one wait.
func TestGPUCopies(t *testing.T) {
	m, _ := openGPU(t, "tiny_mlp", Config{}, fakeSpec{Ahead: 100})
	q := queryOf(t, m, 1, 0)
	if _, err := runAll(m, 1, q); err != nil {
		t.Fatal(err)
	}
	middle := len(m.loaded.sessions) / 2
	inputs, outputs := uint64(len(m.loaded.inputs)), uint64(len(m.loaded.outputs))
	for _, step := range []struct {
		name                    string
		f                       func() error
		in, out, waits, pending uint64
	}{
		{"start", func() error { return m.Start(1, []wire.QueryTensors{q}) }, inputs, 0, 0, inputs},
		{"first span", func() error { _, err := m.Run(1, 0, middle, nil); return err }, 0, 0, 1, 0},
		{"last span", func() error { _, err := m.Run(1, middle, len(m.loaded.sessions), nil); return err }, 0, 0, 0, 0},
		{"finish", func() error { return m.Finish(1, new(collect).take) }, 0, outputs, 1, 0},
	} {
		var err error
		rises := counted(func() { err = step.f() }, fakedriver.CopiesIn, fakedriver.CopiesOut, fakedriver.Syncs)
		if want := []uint64{step.in, step.out, step.waits}; err != nil || !slices.Equal(rises, want) {
			t.Errorf("%s: %v copies in, copies out and waits, expected %v: %v", step.name, rises, want, err)
		}
		if fakePage[fakedriver.Pending] != step.pending {
			t.Errorf("%s: %d copies are queued, expected %d", step.name, fakePage[fakedriver.Pending], step.pending)
		}
	}
	if m.DeviceTime() <= 0 {
		t.Errorf("the device took %v", m.DeviceTime())
	}
}

// TestGPURunsAhead counts how often the host waits while it launches.
func TestGPURunsAhead(t *testing.T) {
	for _, ahead := range []int{1, 2, 100} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			m, _ := openGPU(t, "tiny_mlp", Config{}, fakeSpec{Ahead: ahead})
			q := queryOf(t, m, 1, 0)
			if _, err := runAll(m, 1, q); err != nil {
				t.Fatal(err)
			}
			waits := counted(func() {
				if _, err := runAll(m, 1, q); err != nil {
					t.Fatal(err)
				}
			}, fakedriver.Syncs)[0]
			if want := uint64(max(0, len(m.loaded.sessions)-ahead+1) + 1); waits != want {
				t.Errorf("%d segments: %d waits, expected %d", len(m.loaded.sessions), waits, want)
			}
		})
	}
}

// TestSegmentsAreTimed learns from what the device takes for spans.
func TestSegmentsAreTimed(t *testing.T) {
	l := &layout{live: make([]int64, 4)}
	for _, tt := range []struct {
		name     string
		from, to int
		together time.Duration
		want     []time.Duration
	}{
		{"a span of which nothing is known", 0, 2, 200, []time.Duration{100, 100, 0, 0}},
		{"one segment alone", 1, 2, 40, []time.Duration{100, 40, 0, 0}},
		{"two that took longer alongside others", 0, 2, 500, []time.Duration{100, 40, 0, 0}},
		{"all, half of them unknown", 0, 4, 400, []time.Duration{100, 40, 100, 100}},
		{"all in less", 0, 4, 139, []time.Duration{40, 16, 40, 40}},
		{"nothing", 2, 2, 7, []time.Duration{40, 16, 40, 40}},
		{"next to nothing", 0, 4, 0, []time.Duration{1, 1, 1, 1}},
	} {
		if l.took(tt.from, tt.to, tt.together); !slices.Equal(l.times, tt.want) {
			t.Errorf("%s: %d, expected %d", tt.name, l.times, tt.want)
		}
	}
	if none := (*layout)(nil); none.takes(3) != 0 || l.takes(3) != 1 || new(layout).takes(3) != 0 {
		t.Error("the time of a segment that is not known")
	}

	m, _ := openGPU(t, "tiny_mlp", Config{}, fakeSpec{})
	for _, want := range []bool{false, true} { // the first run teaches shapes
		if _, err := runAll(m, 1, queryOf(t, m, 1, 0)); err != nil {
			t.Fatal(err)
		}
		for _, l := range m.pool.layouts {
			if known := l.times != nil && !slices.Contains(l.times, 0); known != want {
				t.Errorf("times %v, expected to be known: %t", l.times, want)
			}
		}
	}
}

// TestGPUGather gathers inputs of which some are copied from where they lie and
// some from the staging memory, pinned or not.
func TestGPUGather(t *testing.T) {
	g := newGraph()
	g.input("wide", models.Float32, open, 16<<10)
	g.input("narrow", models.Float32, open, 3)
	g.node("Relu", list("wide"), list("a"))
	g.node("Neg", list("narrow"), list("b"))
	g.output("a", models.Float32)
	g.output("b", models.Float32)
	path := g.write(t)
	for _, pinned := range []bool{true, false} {
		t.Run(fmt.Sprint("pinned ", pinned), func(t *testing.T) {
			env := openEnv(t)
			device, _ := openFakeGPU(t, env, fakeSpec{})
			m, w := openCut(t, env, Config{Path: path, Device: device}), openWhole(t, env, path)
			if !pinned {
				failCall(t, fakedriver.CallPin, 1, driver.OutOfMemory)
			}
			a, b := queryOf(t, m, 1, 0), queryOf(t, m, 2, 0)
			for _, queries := range [][]wire.QueryTensors{{a, b}, {b, a}, {a, b}, {a}} {
				expectRun(t, m, w, queries)
			}
			if pins := fakePage[fakedriver.Pins]; pinned && pins == 0 {
				t.Error("the staging memory is not pinned")
			}
		})
	}
}

// TestGPUFaults makes each call of the driver fail in turn. The error says that the worker
// has to end, nothing is left behind, and a driver that recovers continues to serve. After an
// error that lasts for the whole process nothing can be freed, but then the process ends.
func TestGPUFaults(t *testing.T) {
	m, w := openGPU(t, "tiny_mlp", Config{}, fakeSpec{Ahead: 2})
	a, b := queryOf(t, m, 1, 0), queryOf(t, m, 2, 0)
	for name, c := range map[string]struct {
		call   int
		nth    uint64
		result driver.Result
		want   error
	}{
		"memory":            {fakedriver.CallAlloc, 1, driver.OutOfMemory, wire.ErrDeviceMemory},
		"copy in":           {fakedriver.CallCopyIn, 1, 810, wire.ErrDeviceLost},
		"mark":              {fakedriver.CallEventRecord, 2, 999, wire.ErrDeviceLost},
		"wait":              {fakedriver.CallEventQuery, 2, 806, wire.ErrDeviceLost},
		"copy out":          {fakedriver.CallCopyOut, 1, 214, wire.ErrDeviceLost},
		"memory of the MPS": {fakedriver.CallEventRecord, 1, driver.OutOfMemory, wire.ErrDeviceMemory},
	} {
		if len(m.pool.idle) > 0 { // so that memory is wanted
			m.pool.closeIdle(0)
		}
		failCall(t, c.call, c.nth, c.result)
		_, err := runAll(m, 1, a, b)
		var r driver.Result
		if !errors.Is(err, c.want) || !errors.As(err, &r) || r != c.result || !wire.Ends(err) {
			t.Errorf("%s: %v", name, err)
		}
		if len(m.pool.batches) != 0 {
			t.Errorf("%s: %d batches are left", name, len(m.pool.batches))
		}
		fakePage[fakedriver.Sticky] = 0
		expectRun(t, m, w, []wire.QueryTensors{a, b})
	}
}

// TestGPUMemoryOfNeighbours frees the idle frames when no memory is left for a batch.
func TestGPUMemoryOfNeighbours(t *testing.T) {
	m, w := openGPU(t, "tiny_mlp", Config{}, fakeSpec{})
	small, large := queryOf(t, m, 1, 0), queryOf(t, m, 8, 0)
	for range 2 {
		expectRun(t, m, w, []wire.QueryTensors{small})
		expectRun(t, m, w, []wire.QueryTensors{large})
	}
	for i := range m.pool.idle {
		if m.pool.idle[i].layout == m.pool.layouts[layoutKey{signature([][]int64{small.Inputs[0].Shape}), true, 0}] {
			m.pool.closeIdle(i)
			break
		}
	}
	kept := len(m.pool.idle)
	failCall(t, fakedriver.CallAlloc, 1, driver.OutOfMemory)
	expectRun(t, m, w, []wire.QueryTensors{small})
	if kept == 0 || len(m.pool.idle) != 1 {
		t.Errorf("%d frames were kept before and %d after", kept, len(m.pool.idle))
	}
}

// TestHomes gives ends of sessions to the host at random, and expects a wait
// wherever the host reads what the device may still be writing.
func TestHomes(t *testing.T) {
	env := openEnv(t)
	device, fake := openFakeGPU(t, env, fakeSpec{Ahead: 1000})
	fake.random = rand.New(rand.NewPCG(5, 6))
	m := openCut(t, env, Config{Path: openZoo(t, "tiny_bert"), Device: device})
	homes, waits := 0, 0
	for id, host := range m.loaded.hostHome {
		if host {
			homes++
			if m.loaded.known[id].shape {
				t.Errorf("%s lives on the host and is planned for the device", m.loaded.cut.values.Names[id])
			}
		}
	}
	for p := range m.loaded.cut.pieces {
		if m.loaded.waits[p] {
			waits++
		}
		for _, id := range m.loaded.cut.pieces[p].inputs {
			if m.loaded.hostHome[id] && m.loaded.made[id].piece >= 0 && !m.loaded.waits[p] {
				t.Errorf("segment %d does not wait for %s", p, m.loaded.cut.values.Names[id])
			}
		}
	}
	if homes == 0 || waits == 0 || waits == len(m.loaded.waits) {
		t.Fatalf("%d values live on the host, %d of %d segments wait: nothing is tested", homes, waits, len(m.loaded.waits))
	}
	q := queryOf(t, m, 1, 16)
	done := counted(func() {
		if _, err := runAll(m, 1, q); err != nil {
			t.Fatal(err)
		}
	}, fakedriver.Syncs)[0]
	if want := uint64(waits + 1); done != want {
		t.Errorf("%d waits, expected %d", done, want)
	}
}

// TestGPUValues takes the outputs as values, on the host.
func TestGPUValues(t *testing.T) {
	m, w := openGPU(t, "tiny_mlp", Config{}, fakeSpec{})
	q := queryOf(t, m, 2, 0)
	want, err := w.run([]wire.QueryTensors{q})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Start(1, []wire.QueryTensors{q}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Run(1, 0, len(m.loaded.sessions), nil); err != nil {
			t.Fatal(err)
		}
		values, err := m.Values(1)
		if err != nil {
			t.Fatal(err)
		}
		data, err := values[0].Bytes()
		if err != nil || !bytes.Equal(data, want[0][0].data) {
			t.Errorf("%x, %v; expected %x", data, err, want[0][0].data)
		}
		m.Release(1)
	}
}

func openTinyIn(t testing.TB, env *ort.Env, name string) (*CutModel, string) {
	t.Helper()
	path := openZoo(t, name)
	return openCut(t, env, Config{Path: path}), path
}

// TestLoadONNXWithoutDriver leaves the runtime free for the next one.
func TestLoadONNXWithoutDriver(t *testing.T) {
	skipWithoutLibrary(t)
	if _, err := driver.Open(""); err == nil {
		t.Skip("this machine has the driver")
	}
	spec := wire.LoadSpec{Service: "tiny", ModelPath: openZoo(t, "tiny_add"), CacheDir: t.TempDir(), CUDA: &wire.CUDASpec{}}
	for range 2 {
		if _, err := LoadONNX(spec, worker.Memory{}, nothing); !errors.Is(err, driver.ErrNoLibrary) || !strings.Contains(err.Error(), "install") || errors.Is(err, ort.ErrEnvOpen) {
			t.Errorf("%v", err)
		}
	}
	spec.CUDA = nil
	loadTiny(t, spec)
}

// TestGPUSynchronizes runs segments whose kernels may leave pinned memory behind, and no
// others, so that it is given back now and then, each in a batch of its own.
func TestGPUSynchronizes(t *testing.T) {
	g := xGraph()
	g.node("Relu", list("x"), list("a"))
	g.node("Concat", list("a", "x"), list("b"), intAttribute("axis", 1))
	g.node("Neg", list("b"), list("c"))
	g.node("Concat", list("c", "a"), list("d"), intAttribute("axis", 1))
	branch := newGraph()
	branch.node("Identity", list("d"), list("e"))
	branch.output("e", models.Float32)
	g.node("If", list(g.weights("yes", models.Bool, nil, []byte{1})), list("y"), graphAttribute("then_branch", branch), graphAttribute("else_branch", branch))
	g.output("y", models.Float32)
	env := openEnv(t)
	device, _ := openFakeGPU(t, env, fakeSpec{})
	path, cache := g.write(t), t.TempDir()
	plant(t, env, device, path, cache) // the optimizer would take the branch, and be done
	m := openCut(t, env, Config{Path: path, CacheDir: cache, Device: device})
	q := queryOf(t, m, 1, 0)
	var kinds []string
	for _, op := range m.Model().Operators {
		kinds = append(kinds, op.Type)
	}
	if !slices.Equal(kinds, list("Relu", "Concat", "Neg", "Concat", "If")) {
		t.Fatalf("operators %v", kinds)
	}
	const rounds = 2
	turns := make([]int, len(kinds))
	for range rounds * synchronizeEvery {
		if err := m.Start(1, []wire.QueryTensors{q}); err != nil {
			t.Fatal(err)
		}
		waiting := 0
		for p := range kinds {
			if _, err := m.Run(1, p, p+1, nil); err != nil {
				t.Fatal(err)
			}
			if m.pool.batches[1].frame.program.Synchronizes() {
				turns[p]++
				waiting++
			}
		}
		if waiting > 1 {
			t.Errorf("%d segments synchronize in one batch", waiting)
		}
		m.Release(1)
	}
	if want := []int{0, rounds, 0, rounds, rounds}; !slices.Equal(turns, want) {
		t.Errorf("in %d batches segments synchronize %v times, expected %v", rounds*synchronizeEvery, turns, want)
	}
}

// plant puts the model at path into the cache as its own optimized form.
func plant(t *testing.T, env *ort.Env, d *gpu.Device, path, cacheDir string) {
	t.Helper()
	f, err := models.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(filepath.Join(cacheDir, cacheName(f.Hash(), env.Library(), cacheKey(gpuDevice{d}, f))), f.Parts().Append(nil), 0o600); err != nil {
		t.Fatal(err)
	}
}
