package segments

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// openGraphs opens a model on a device that has CUDA graphs.
func openGraphs(t *testing.T, path string, c Config) (*CutModel, *fakeGPU) {
	t.Helper()
	env := openEnv(t)
	device, fake := openFakeGPU(t, env, fakeSpec{CUDASpec: wire.CUDASpec{Graphs: true}})
	c.Path, c.Device = path, device
	return openCut(t, env, c), fake
}

// graphCount counts what a session would capture and replay: the first run of a segment
// under a number, and later ones.
type graphCount struct {
	seen              map[[2]int]bool
	captures, replays int
}

// run runs a batch segment by segment, and returns which ran as graphs.
func (n *graphCount) run(t *testing.T, m *CutModel, id models.BatchID, q wire.QueryTensors) (graphs []bool) {
	t.Helper()
	if err := m.Start(id, []wire.QueryTensors{q}); err != nil {
		t.Fatal(err)
	}
	defer m.Release(id)
	for p := range m.loaded.sessions {
		if _, err := m.Run(id, p, p+1, nil); err != nil {
			t.Fatal(err)
		}
		f := m.pool.batches[id].frame
		graphs = append(graphs, f.program.HasGraphs())
		if at := [2]int{f.captures.number, p}; !f.program.HasGraphs() {
			continue
		} else if n.seen[at] {
			n.replays++
		} else {
			n.seen[at] = true
			n.captures++
		}
	}
	return graphs
}

func newGraphCount() *graphCount { return &graphCount{seen: map[[2]int]bool{}} }

// TestGraphsAreCaptured counts captures and replays of a frame, and of two that run in
// turns, each of which has graphs of its own.
func TestGraphsAreCaptured(t *testing.T) {
	m, _ := openGraphs(t, openZoo(t, "tiny_mlp"), Config{})
	q, other := queryOf(t, m, 1, 0), queryOf(t, m, 2, 0)
	n, segments := newGraphCount(), len(m.loaded.sessions)
	for run := range 1 + captureRuns { // the first teaches shapes
		if n.run(t, m, 1, q); n.captures != 0 {
			t.Errorf("%d captures in run %d", n.captures, run)
		}
	}
	if n.run(t, m, 1, q); n.captures != segments || n.replays != 0 {
		t.Errorf("%d captures and %d replays of %d segments", n.captures, n.replays, segments)
	}
	for range 3 {
		n.run(t, m, 1, q)
	}
	if n.captures != segments || n.replays != 3*segments {
		t.Errorf("%d captures and %d replays of %d segments in three more", n.captures, n.replays, segments)
	}
	for range 1 + captureRuns + 2 {
		n.run(t, m, 1, other)
	}
	if n.run(t, m, 1, q); n.captures != 2*segments || n.replays != 5*segments {
		t.Errorf("%d captures and %d replays of %d segments and two shapes", n.captures, n.replays, segments)
	}
	w := openWhole(t, m.loaded.env, openZoo(t, "tiny_mlp"))
	for _, queries := range [][]wire.QueryTensors{{q}, {other}, {q, other}, {q}, {other}} {
		expectRun(t, m, w, queries)
	}
}

// TestNoGraphs looks at where none may be.
func TestNoGraphs(t *testing.T) {
	settle := func(m *CutModel, q wire.QueryTensors) {
		for range 2 + captureRuns {
			newGraphCount().run(t, m, 1, q)
		}
	}
	expect := func(name string, m *CutModel, q wire.QueryTensors, want ...bool) {
		t.Helper()
		if got := newGraphCount().run(t, m, 1, q); !slices.Equal(got, want) {
			t.Errorf("%s: graphs %v, expected %v", name, got, want)
		}
	}
	g := xGraph()
	g.node("Relu", list("x"), list("a"))
	g.node("Concat", list("a", "x"), list("b"), intAttribute("axis", 1)) // has pinned memory
	g.node("RandomUniformLike", list("b"), list("c"))                    // differs in each run
	g.node("Add", list("b", "c"), list("d"))
	g.node("Tanh", list("d"), list("y"))
	g.output("y", models.Float32)
	path := g.write(t)
	for name, spec := range map[string]fakeSpec{
		"turned off": {}, "on another thread": {CUDASpec: wire.CUDASpec{Graphs: true}, Loads: true},
	} {
		t.Run(name, func(t *testing.T) {
			env := openEnv(t)
			device, _ := openFakeGPU(t, env, spec)
			m := openCut(t, env, Config{Path: path, Device: device})
			q := queryOf(t, m, 1, 0)
			settle(m, q)
			expect(name, m, q, make([]bool, 5)...)
		})
	}
	m, fake := openGraphs(t, path, Config{})
	device := m.loaded.device.(gpuDevice).Device
	q, longer := queryOf(t, m, 1, 0), queryOf(t, m, 3, 0)
	settle(m, q)
	expect("all", m, q, true, false, false, true, true)

	if err := m.Start(9, []wire.QueryTensors{longer}); err != nil { // it learns, from values in the arena
		t.Fatal(err)
	}
	expect("beside a batch with values in the arena", m, q, make([]bool, 5)...)
	m.Release(9)
	expect("after it", m, q, true, false, false, true, true)

	loose := xGraph()
	loose.node("Relu", list("x"), list("a"))
	loose.node("NonZero", list("a"), list("b"))
	loose.node("Neg", list("b"), list("y"))
	loose.output("y", models.Int64)
	m = openCut(t, m.loaded.env, Config{Path: loose.write(t), Device: device})
	q = queryOf(t, m, 1, 0)
	settle(m, q)
	expect("with a value whose shape follows from data", m, q, false, false, false)

	fake.random = rand.New(rand.NewPCG(5, 6))
	m = openCut(t, m.loaded.env, Config{Path: openZoo(t, "tiny_bert"), Device: device})
	q = queryOf(t, m, 1, 16)
	settle(m, q)
	graphs := 0
	for p, graph := range newGraphCount().run(t, m, 1, q) {
		if !graph {
			continue
		}
		graphs++
		for _, id := range slices.Concat(m.loaded.cut.pieces[p].inputs, m.loaded.cut.pieces[p].outputs) {
			if m.loaded.hostHome[id] || m.loaded.waits[p] {
				t.Errorf("segment %d is a graph, and %s is with the host", p, m.loaded.cut.values.Names[id])
			}
		}
	}
	if graphs == 0 {
		t.Error("no segment is a graph: nothing is tested")
	}
}

// TestGraphsAreLimited runs more frames than may have graphs.
func TestGraphsAreLimited(t *testing.T) {
	m, _ := openGraphs(t, openZoo(t, "tiny_mlp"), Config{Target: 1})
	q, n := queryOf(t, m, 1, 0), newGraphCount()
	for range mostCaptures + 2 {
		m.pool.closeAllIdle()
		for range 2 + captureRuns {
			n.run(t, m, 1, q)
		}
	}
	if n.captures != mostCaptures {
		t.Errorf("%d captures, the limit is %d", n.captures, mostCaptures)
	}
}

// TestGraphFault ends the worker whose capture fails: its stream may still be recording.
func TestGraphFault(t *testing.T) {
	said := &ort.Error{Code: "fail", Message: "CUDA failure 901: operation failed due to a previous error during capture"}
	if err := captureFault(false, said); err != error(said) {
		t.Error(err)
	}
	if err := captureFault(true, fmt.Errorf("step 0: %w", said)); !errors.Is(err, wire.ErrDeviceLost) || !wire.Ends(err) || !errors.Is(err, said) {
		t.Error(err)
	}
}
