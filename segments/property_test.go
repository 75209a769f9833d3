package segments

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
)

// Limits of the random models and batches.
const (
	maxTestNodes   = 14
	maxTestQueries = 3
	maxTestSize    = 3
	maxTestBatches = 4
	testWidth      = 8
)

// randomGraph draws a graph. All its values have the shape [batch, testWidth],
// but for what lies inside the steps that randomStep adds.
type randomGraph struct {
	*graph
	*rapid.T
	values []string
	count  int
}

func drawGraph(t *rapid.T) (*graph, string) {
	g := &randomGraph{graph: newGraph(), T: t}
	for i := range rapid.IntRange(1, 2).Draw(t, "inputs") {
		name := fmt.Sprintf("in%d", i)
		g.values = append(g.values, g.input(name, models.Float32, open, testWidth))
	}
	inputs := len(g.values)
	matrix := make([]float32, testWidth*testWidth)
	for i := range matrix {
		matrix[i] = float32(i%5)*0.25 - 0.4
	}
	g.floats("matrix", []int64{testWidth, testWidth}, matrix...)
	g.floats("row", []int64{testWidth}, matrix[:testWidth]...)
	g.floats("zero", nil, 0)
	g.int64s("to3", -1, testWidth/2, 2)
	g.int64s("to2", -1, testWidth)
	g.int64s("one", 1)
	log := ""
	for range rapid.IntRange(1, maxTestNodes).Draw(t, "nodes") {
		step := rapid.SampledFrom(randomSteps).Draw(t, "step")
		out := step.add(g)
		g.values = append(g.values, out)
		log += step.name + " "
	}
	made := g.values[inputs:]
	chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(made), 1, min(3, len(made)), rapid.ID[string]).Draw(t, "outputs")
	for _, name := range chosen {
		g.output(name, models.Float32)
	}
	return g.graph, log
}

// any returns some value that there is.
func (g *randomGraph) any() string { return rapid.SampledFrom(g.values).Draw(g.T, "value") }

func (g *randomGraph) name() string {
	g.count++
	return fmt.Sprintf("v%d", g.count)
}

func (g *randomGraph) unary(op string, attributes ...[]byte) string {
	return g.node(op, list(g.any()), list(g.name()), attributes...)
}

var randomSteps = []struct {
	name string
	add  func(g *randomGraph) string
}{
	{"Relu", func(g *randomGraph) string { return g.unary("Relu") }},
	{"Tanh", func(g *randomGraph) string { return g.unary("Tanh") }},
	{"Sigmoid", func(g *randomGraph) string { return g.unary("Sigmoid") }},
	{"Neg", func(g *randomGraph) string { return g.unary("Neg") }},
	{"Abs", func(g *randomGraph) string { return g.unary("Abs") }},
	{"Identity", func(g *randomGraph) string { return g.unary("Identity") }},
	{"Softmax", func(g *randomGraph) string { return g.unary("Softmax") }},
	{"Flatten", func(g *randomGraph) string { return g.unary("Flatten") }},
	{"Add", func(g *randomGraph) string { return g.node("Add", list(g.any(), g.any()), list(g.name())) }},
	{"Sub", func(g *randomGraph) string { return g.node("Sub", list(g.any(), g.any()), list(g.name())) }},
	{"Mul", func(g *randomGraph) string { return g.node("Mul", list(g.any(), g.any()), list(g.name())) }},
	{"Add row", func(g *randomGraph) string { return g.node("Add", list(g.any(), "row"), list(g.name())) }},
	{"row Sub", func(g *randomGraph) string { return g.node("Sub", list("row", g.any()), list(g.name())) }},
	{"MatMul", func(g *randomGraph) string { return g.node("MatMul", list(g.any(), "matrix"), list(g.name())) }},
	{"Where", func(g *randomGraph) string {
		a, b, positive := g.any(), g.any(), g.name()
		g.node("Greater", list(a, b), list(positive))
		return g.node("Where", list(positive, b, a), list(g.name()))
	}},
	{"Reshape", func(g *randomGraph) string {
		a, b := g.name(), g.name()
		g.node("Reshape", list(g.any(), "to3"), list(a))
		g.node("Transpose", list(a), list(b))
		g.node("Transpose", list(b), list(a+"back"))
		return g.node("Reshape", list(a+"back", "to2"), list(g.name()))
	}},
	{"Unsqueeze", func(g *randomGraph) string {
		a, b := g.name(), g.name()
		g.node("Unsqueeze", list(g.any(), "one"), list(a))
		g.node("Relu", list(a), list(b))
		return g.node("Squeeze", list(b, "one"), list(g.name()))
	}},
	{"Split", func(g *randomGraph) string {
		a, b := g.name(), g.name()
		g.node("Split", list(g.any()), list(a, b), intAttribute("axis", 1))
		return g.node("Concat", list(b, a), list(g.name()), intAttribute("axis", 1))
	}},
	{"NonZero", func(g *randomGraph) string { return g.addDataDependent() }},
	{"If", func(g *randomGraph) string { return g.addIf() }},
	{"Sequence", func(g *randomGraph) string {
		a, b, s := g.any(), g.any(), g.name()
		g.node("SequenceConstruct", list(a, b, a), list(s))
		return g.node("SequenceAt", list(s, "one"), list(g.name()))
	}},
	{"Optional", func(g *randomGraph) string {
		o := g.name()
		g.node("Optional", list(g.any()), list(o))
		return g.node("OptionalGetElement", list(o), list(g.name()))
	}},
}

// addDataDependent adds a tensor to which positions of another one's positive
// elements contribute: how many there are depends on the data.
func (g *randomGraph) addDataDependent() string {
	positive, places, floats, sum := g.name(), g.name(), g.name(), g.name()
	g.node("Greater", list(g.any(), "zero"), list(positive))
	g.node("NonZero", list(positive), list(places))
	g.node("Cast", list(places), list(floats), intAttribute("to", int64(models.Float32)))
	g.node("ReduceMean", list(floats), list(sum))
	return g.node("Mul", list(g.any(), sum), list(g.name()))
}

// addIf adds an operator with two graphs that use values and weights around
// them.
func (g *randomGraph) addIf() string {
	total, condition, name := g.name(), g.name(), g.name()
	g.node("ReduceSum", list(g.any()), list(total), intAttribute("keepdims", 0))
	g.node("Greater", list(total, "zero"), list(condition))
	yes, no := newGraph(), newGraph()
	yes.node("Add", list(g.any(), "row"), list(name+"yes"))
	yes.output(name+"yes", models.Float32)
	no.node("Identity", list(g.any()), list(name+"no"))
	no.output(name+"no", models.Float32)
	return g.node("If", list(condition), list(name), graphAttribute("then_branch", yes), graphAttribute("else_branch", no))
}

// TestInterleavedBatches runs several batches of random models, each paused at
// operators of its own, some released midway. Every output must be what ONNX
// Runtime gives for the whole model, bit by bit.
func TestInterleavedBatches(t *testing.T) {
	env := openEnv(t)
	rapid.Check(t, func(rt *rapid.T) { checkInterleaved(t, rt, env, nil) })
}

// TestInterleavedBatchesOnGPU does so on a device whose memory is not the
// host's, which queues its work, and with some values at home on the host.
func TestInterleavedBatchesOnGPU(t *testing.T) {
	env := openEnv(t)
	rapid.Check(t, func(rt *rapid.T) {
		device, fake, err := newFakeGPU(env, fakeSpec{Ahead: rapid.IntRange(1, 3).Draw(rt, "ahead")})
		if err != nil {
			rt.Fatal(err)
		}
		defer closeFakeGPU(rt, device)
		if rapid.Bool().Draw(rt, "host") {
			fake.random = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "homes"), 0))
		}
		checkInterleaved(t, rt, env, device)
	})
}

func checkInterleaved(t *testing.T, rt *rapid.T, env *ort.Env, device *gpu.Device) {
	g, steps := drawGraph(rt)
	path := g.write(t)
	session, err := env.NewSessionFromFile(path, ort.SessionOptions{Optimize: true})
	if err != nil {
		rt.Fatalf("%s: %v", steps, err)
	}
	defer session.Close()
	m, err := OpenModel(env, Config{
		Path:     path,
		CacheDir: t.TempDir(),
		Target:   rapid.IntRange(0, 6).Draw(rt, "target"),
		Device:   device,
		Units:    rapid.IntRange(0, 4).Draw(rt, "units"),

		leastShared: 1,
	})
	if err != nil {
		rt.Fatalf("%s: %v", steps, err)
	}
	defer closeCut(rt, m)
	m.pool.options.inPlace = rapid.Bool().Draw(rt, "in place")
	p := &play{T: rt, m: m, whole: &whole{env, session}, running: map[models.BatchID]*running{}}
	defer p.releaseAll()
	rt.Repeat(map[string]func(*rapid.T){
		"start":   p.start,
		"run":     p.run,
		"finish":  p.finish,
		"release": p.release,
		"misuse":  p.misuse,
		"":        p.check,
	})
}

// play drives a model and knows what it must answer.
type play struct {
	*rapid.T
	m       *CutModel
	whole   *whole
	running map[models.BatchID]*running
	last    models.BatchID
}

type running struct {
	queries []wire.QueryTensors
	next    int
}

func (p *play) start(t *rapid.T) {
	if len(p.running) == maxTestBatches {
		t.Skip("enough batches")
	}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "data"), 0))
	var queries []wire.QueryTensors
	for range rapid.IntRange(1, maxTestQueries).Draw(t, "queries") {
		size := rapid.Int64Range(1, maxTestSize).Draw(t, "size")
		queries = append(queries, randomQuery(t, p.m.Model(), size, 0, r))
	}
	p.last++
	if err := p.m.Start(p.last, queries); err != nil {
		t.Fatal(err)
	}
	p.running[p.last] = &running{queries: queries}
}

// pick returns a batch that is running.
func (p *play) pick(t *rapid.T) (models.BatchID, *running) {
	if len(p.running) == 0 {
		t.Skip("no batch")
	}
	var ids []models.BatchID
	for id := range p.running {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(t, "batch")
	return id, p.running[id]
}

func (p *play) run(t *rapid.T) {
	id, b := p.pick(t)
	end := rapid.IntRange(b.next, len(p.m.loaded.sessions)).Draw(t, "end")
	share := rapid.IntRange(0, 3).Draw(t, "share")
	stop := uint32(0)
	if rapid.IntRange(0, 4).Draw(t, "stop") == 0 {
		stop = 1
	}
	reached, err := p.m.RunShare(id, b.next, end, share, &stop)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[uint32]int{0: end, 1: b.next}[stop]; reached != want {
		t.Fatalf("reached operator %d, expected %d", reached, want)
	}
	b.next = reached
}

func (p *play) finish(t *rapid.T) {
	id, b := p.pick(t)
	if _, err := p.m.Run(id, b.next, len(p.m.loaded.sessions), nil); err != nil {
		t.Fatal(err)
	}
	var got collect
	if err := p.m.Finish(id, got.take); err != nil {
		t.Fatal(err)
	}
	want, err := p.whole.run(b.queries)
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(got, want); err != nil {
		t.Fatal(err)
	}
	p.forget(id)
}

func (p *play) release(t *rapid.T) {
	id, _ := p.pick(t)
	p.m.Release(id)
	p.forget(id)
}

func (p *play) forget(id models.BatchID) {
	for _, q := range p.running[id].queries {
		thaw(q)
	}
	delete(p.running, id)
}

func (p *play) releaseAll() {
	for id := range p.running {
		p.m.Release(id)
		p.forget(id)
	}
}

// misuse asks for what must be refused and must change nothing.
func (p *play) misuse(t *rapid.T) {
	id, b := p.pick(t)
	if err := p.m.Start(id, b.queries); !errors.Is(err, wire.ErrBatchExists) {
		t.Fatalf("second Start: %v", err)
	}
	for _, span := range [][2]int{{b.next + 1, b.next + 1}, {b.next, len(p.m.loaded.sessions) + 1}, {b.next, b.next - 1}} {
		if _, err := p.m.Run(id, span[0], span[1], nil); !errors.Is(err, wire.ErrSpanOrder) {
			t.Fatalf("Run of %v at %d: %v", span, b.next, err)
		}
	}
	if _, err := p.m.Run(p.last+1, 0, 0, nil); !errors.Is(err, wire.ErrUnknownBatch) {
		t.Fatalf("Run of an unknown batch: %v", err)
	}
	if b.next < len(p.m.loaded.sessions) {
		if err := p.m.Finish(id, nil); !errors.Is(err, ErrUnfinished) {
			t.Fatalf("Finish at %d: %v", b.next, err)
		}
	}
}

func (p *play) check(t *rapid.T) {
	if n := len(p.m.pool.batches); n != len(p.running) {
		t.Fatalf("%d batches, expected %d", n, len(p.running))
	}
	if n := p.m.IntermediateBytes(); n < 0 || n > p.m.pool.budget {
		t.Fatalf("%d bytes of intermediates, the budget is %d", n, p.m.pool.budget)
	}
}
