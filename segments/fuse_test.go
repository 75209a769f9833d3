package segments

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

const channels = 3 // of the images of convolutional graphs

// imageGraph returns a graph whose input x is a batch of images.
func imageGraph() *graph {
	g := newGraph()
	g.input("x", models.Float32, open, channels, 5, 5)
	return g
}

// conv adds a convolution that leaves the shape of its input as it is.
func (g *graph) conv(in, out string, bias bool, attributes ...[]byte) string {
	r := rand.New(rand.NewPCG(1, uint64(len(g.parts.Nodes))))
	numbers := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = r.Float32() - 0.5
		}
		return values
	}
	inputs := list(in, g.floats("weights of "+out, []int64{channels, channels, 3, 3}, numbers(channels*channels*9)...))
	if bias {
		inputs = append(inputs, g.floats("bias of "+out, []int64{channels}, numbers(channels)...))
	}
	if attributes == nil {
		attributes = [][]byte{pads(1, 1, 1, 1)}
	}
	return g.node("Conv", inputs, list(out), attributes...)
}

func pads(sizes ...uint64) []byte {
	var packed []byte
	for _, s := range sizes {
		packed = protowire.AppendVarint(packed, s)
	}
	return models.AppendInt(models.AppendField(models.AppendString(nil, 1, "pads"), 8, packed), 20, 7)
}

func (g *graph) relu(in, out string) string { return g.node("Relu", list(in), list(out)) }

// kinds returns the operators of a model that is cut at every node, in order.
func kinds(m *CutModel) (kinds []string) {
	for _, op := range m.Model().Operators {
		kinds = append(kinds, op.Type)
	}
	return kinds
}

// fusedAndPlain opens a model twice, with its convolutions fused and not.
func fusedAndPlain(t *testing.T, c Config) (fused, plain *CutModel) {
	t.Helper()
	env := openEnv(t)
	c.CacheDir = t.TempDir() // of both: they must not take each other's form
	device, fake := openFakeGPU(t, env, fakeSpec{})
	c.Device, fake.onnx = device, true
	fused = openCut(t, env, c)
	device.plain = true
	return fused, openCut(t, env, c)
}

// sumTolerance is by how much results may differ where a convolution adds something,
// relative to the largest one: the sum is rounded in another order.
const sumTolerance = 1e-5

// difference returns the largest difference of two sets of float32 outputs, relative to
// the largest of them.
func difference(t *testing.T, a, b collect) float64 {
	t.Helper()
	most, largest := 0.0, 0.0
	for q := range b {
		for i := range b[q] {
			x, y := a[q][i].data, b[q][i].data
			if a[q][i].elem != models.Float32 || !slices.Equal(a[q][i].shape, b[q][i].shape) || len(x) != len(y) {
				t.Fatalf("output %d is %s%v and %s%v", i, a[q][i].elem, a[q][i].shape, b[q][i].elem, b[q][i].shape)
			}
			for at := 0; at < len(x); at += 4 {
				u := float64(math.Float32frombits(binary.LittleEndian.Uint32(x[at:])))
				v := float64(math.Float32frombits(binary.LittleEndian.Uint32(y[at:])))
				most, largest = max(most, math.Abs(u-v)), max(largest, math.Abs(v))
			}
		}
	}
	if largest == 0 || math.IsNaN(most) {
		t.Fatalf("results up to %v differ by %v: nothing is tested", largest, most)
	}
	return most / largest
}

// expectSame runs both models with batches of several sizes, in turns, and expects the
// same results within a tolerance, 0 for the same to the bit.
func expectSame(t *testing.T, a, b *CutModel, tolerance float64, sizes ...int64) {
	t.Helper()
	for _, size := range sizes {
		q := randomQuery(t, a.Model(), size, 0, rand.New(rand.NewPCG(3, uint64(size))))
		got, err := runAll(a, 1, q)
		want, werr := runAll(b, 1, q)
		thaw(q)
		if err != nil || werr != nil {
			t.Fatal(err, werr)
		}
		if d := difference(t, got, want); d > tolerance {
			t.Errorf("batch %d: results differ by %v", size, d)
		}
	}
}

func TestFusedConv(t *testing.T) {
	for _, c := range []struct {
		name      string
		build     func(g *graph)
		want      []string // operators
		tolerance float64
	}{
		{"with a bias", func(g *graph) {
			g.output(g.relu(g.conv("x", "a", true), "y"), models.Float32)
		}, list("FusedConv"), 0},
		{"without a bias", func(g *graph) {
			g.output(g.relu(g.conv("x", "a", false), "y"), models.Float32)
		}, list("FusedConv"), 0},
		{"of a sum", func(g *graph) {
			g.node("Add", list(g.conv("x", "a", true), "x"), list("b"))
			g.output(g.relu("b", "y"), models.Float32)
		}, list("FusedConv"), sumTolerance},
		{"of a sum, without a bias, the other way round", func(g *graph) {
			g.node("Add", list("x", g.conv("x", "a", false)), list("b"))
			g.output(g.relu("b", "y"), models.Float32)
		}, list("FusedConv"), sumTolerance},
		{"of a sum of two", func(g *graph) {
			g.conv("x", "a", true)
			g.node("Add", list(g.conv(g.relu(g.conv("x", "b", true), "c"), "d", true), "a"), list("e"))
			g.output(g.relu("e", "y"), models.Float32)
		}, list("Conv", "FusedConv", "FusedConv"), sumTolerance},
		{"of a sum with what is made later", func(g *graph) {
			g.conv("x", "a", true)
			g.node("Neg", list("x"), list("b"))
			g.node("Add", list("a", "b"), list("c"))
			g.output(g.relu("c", "y"), models.Float32)
		}, list("Neg", "FusedConv"), sumTolerance},
		{"shared", func(g *graph) {
			g.output(g.relu(g.conv("x", "a", true), "y"), models.Float32)
			g.output(g.node("Neg", list("a"), list("z")), models.Float32)
		}, list("Conv", "Neg", "Relu"), 0},
		{"a sum that is shared", func(g *graph) {
			g.node("Add", list(g.conv("x", "a", true), "x"), list("b"))
			g.output(g.relu("b", "y"), models.Float32)
			g.output(g.node("Neg", list("b"), list("z")), models.Float32)
		}, list("Add", "Conv", "Neg", "Relu"), 0},
		{"an output of the model", func(g *graph) {
			g.output(g.conv("x", "a", true), models.Float32)
			g.output(g.relu("a", "y"), models.Float32)
		}, list("Conv", "Relu"), 0},
		{"a sum that is an output of the model", func(g *graph) {
			g.output(g.node("Add", list(g.conv("x", "a", true), "x"), list("b")), models.Float32)
			g.output(g.relu("b", "y"), models.Float32)
		}, list("Add", "Conv", "Relu"), 0},
		{"twice the same", func(g *graph) {
			g.node("Add", list(g.conv("x", "a", true), "a"), list("b"))
			g.output(g.relu("b", "y"), models.Float32)
		}, list("Add", "Conv", "Relu"), 0},
		{"of a sum with one number for each channel", func(g *graph) {
			g.node("GlobalAveragePool", list("x"), list("m"))
			g.node("Add", list(g.conv("x", "a", true), "m"), list("b"))
			g.output(g.relu("b", "y"), models.Float32)
		}, list("Add", "Conv", "GlobalAveragePool", "Relu"), 0},
		{"of a sum with another batch", func(g *graph) {
			g.input("z", models.Float32, 1, channels, 5, 5)
			g.node("Add", list(g.conv("x", "a", true), "z"), list("b"))
			g.output(g.relu("b", "y"), models.Float32)
		}, list("Add", "Conv", "Relu"), 0},
		{"of a sum of as many as the data say", func(g *graph) {
			g.node("ReduceMax", list("x"), list("m"), intAttribute("keepdims", 0))
			g.node("Mul", list("m", g.floats("zero", nil, 0)), list("n"))
			g.node("Add", list("n", g.floats("two", nil, 2)), list("o"))
			g.node("Cast", list("o"), list("p"), intAttribute("to", int64(models.Int64)))
			g.node("Reshape", list("p", g.int64s("one", 1)), list("rows"))
			g.node("Slice", list("x", g.int64s("first", 0), "rows", g.int64s("axis", 0)), list("s"))
			g.node("Add", list(g.conv("s", "a", true), g.conv("s", "t", true)), list("b"))
			g.output(g.relu("b", "y"), models.Float32)
		}, list("Add", "Add", "Cast", "Conv", "Conv", "Mul", "ReduceMax", "Relu", "Reshape", "Slice"), 0},
		{"another activation", func(g *graph) {
			g.output(g.node("Sigmoid", list(g.conv("x", "a", true)), list("y")), models.Float32)
		}, list("Conv", "Sigmoid"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := imageGraph()
			c.build(g)
			fused, plain := fusedAndPlain(t, Config{Path: g.write(t)})
			got := kinds(fused)
			if !slices.Contains(c.want, "FusedConv") {
				slices.Sort(got) // the optimizer may change the order
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("operators %v, expected %v", got, c.want)
			}
			if slices.Contains(kinds(plain), "FusedConv") {
				t.Errorf("plain operators %v", kinds(plain))
			}
			expectSame(t, fused, plain, c.tolerance, 2, 1, 3)
		})
	}
}

// Batch dimensions without a name count as equal where one comes from the other.
func TestFusedConvWithoutDimensionNames(t *testing.T) {
	g := newGraph()
	x := tensorType(models.Float32, open, channels, 5, 5)
	x.Shape[0].Name = ""
	g.parts.Inputs = [][]byte{models.AppendValueInfo(nil, "x", x), models.AppendValueInfo(nil, "z", x)}
	g.node("Add", list(g.conv("x", "a", true), "x"), list("b"))
	g.node("Add", list(g.conv(g.relu("b", "c"), "d", true), "z"), list("e"))
	g.output(g.relu("e", "y"), models.Float32)
	fused, plain := fusedAndPlain(t, Config{Path: g.write(t)})
	if want := list("FusedConv", "Conv", "Add", "Relu"); !slices.Equal(kinds(fused), want) {
		t.Errorf("operators %v, expected %v: z may be a batch of one", kinds(fused), want)
	}
	expectSame(t, fused, plain, sumTolerance, 1, 2)
}

// CUDA's FusedConv takes float32 only, and what it computes beyond the result where
// there is more padding on one side is of another shape than what it adds.
func TestFusibleConvolutions(t *testing.T) {
	half := func(g *graph) {
		g.weights("w", models.Float16, []int64{1, 1, 1, 1}, make([]byte, 2))
		g.node("Conv", list("h", "w"), list("a"))
	}
	text := func(s string) []byte {
		return models.AppendInt(models.AppendString(models.AppendString(nil, 1, "auto_pad"), 4, s), 20, 3)
	}
	for name, c := range map[string]struct {
		build func(g *graph)
		want  bool
	}{
		"as usual":          {func(g *graph) { g.conv("x", "a", true) }, true},
		"without padding":   {func(g *graph) { g.conv("x", "a", true, text("VALID")) }, true},
		"padding as given":  {func(g *graph) { g.conv("x", "a", true, text("NOTSET"), pads(1, 0, 1, 0)) }, true},
		"padding as needed": {func(g *graph) { g.conv("x", "a", true, text("SAME_UPPER")) }, false},
		"uneven padding":    {func(g *graph) { g.conv("x", "a", true, pads(0, 0, 1, 1)) }, false},
		"half precision":    {half, false},
		"a line":            {func(g *graph) { g.node("Conv", list("x", g.floats("w", []int64{1, 1, 1}, 1)), list("a")) }, false},
		"unknown weights":   {func(g *graph) { g.node("Conv", list("x", g.input("w", models.Float32, 1, 1, 1, 1)), list("a")) }, false},
		"another domain": {func(g *graph) {
			g.parts.Nodes = append(g.parts.Nodes, nodeProto("Conv", "other", list("x", "w"), list("a")))
		}, false},
	} {
		g := imageGraph()
		g.input("h", models.Float16, open, 1, 1, 1)
		if name == "another domain" {
			g.floats("w", []int64{1, 1, 1, 1}, 1)
		}
		c.build(g)
		g.output(g.relu("a", "y"), models.Float32)
		f, err := models.Parse(g.encode())
		if err != nil {
			t.Fatal(err)
		}
		parts := f.Parts()
		got, err := fuseConvolutions(nil, nil, parts, f)
		if err != nil || got != c.want {
			t.Errorf("%s: fused %t, expected %t: %v", name, got, c.want, err)
		}
		domain := slices.ContainsFunc(parts.Opsets, func(raw []byte) bool { return string(raw) == string(opsetID(microsoft, 1)) })
		if domain != got || len(parts.Nodes) != map[bool]int{true: 1, false: 2}[got] {
			t.Errorf("%s: %d nodes, ONNX Runtime's own domain is imported: %t", name, len(parts.Nodes), domain)
		}
	}
}

func TestFusedZoo(t *testing.T) {
	counts := map[string][2]int{"tiny_cnn": {3, 0}}
	if !testing.Short() && !raceEnabled {
		counts["resnet50"] = [2]int{49, 4}
	}
	for name, want := range counts {
		t.Run(name, func(t *testing.T) {
			fused, plain := fusedAndPlain(t, Config{Path: openZoo(t, name)})
			var got [2]int
			for _, kind := range kinds(fused) {
				switch kind {
				case "FusedConv":
					got[0]++
				case "Conv":
					got[1]++
				}
			}
			if got != want {
				t.Errorf("%d fused convolutions and %d others, expected %d: %v", got[0], got[1], want, kinds(fused))
			}
			expectSame(t, fused, plain, sumTolerance, 1, 2)
		})
	}
}

// TestConvSets runs batches of several sizes in sets of sessions of their own where
// convolutions are not fused, and in the same ones elsewhere.
func TestConvSets(t *testing.T) {
	g := imageGraph()
	g.node("Sigmoid", list(g.conv(g.relu(g.conv("x", "a", true), "b"), "c", true)), list("y"))
	g.output("y", models.Float32)
	env, path, cache := openEnv(t), g.write(t), t.TempDir()
	device, fake := openFakeGPU(t, env, fakeSpec{CUDASpec: wire.CUDASpec{ConvSets: 3}})
	fake.onnx = true
	several := openCut(t, env, Config{Path: path, CacheDir: cache, Device: device})
	device.sets = 1
	one := openCut(t, env, Config{Path: path, CacheDir: cache, Device: device})
	if want := list("FusedConv", "Conv", "Sigmoid"); !slices.Equal(kinds(several), want) {
		t.Fatalf("operators %v, expected %v", kinds(several), want)
	}
	expectSame(t, several, one, 0, 1, 2, 5, 3, 4, 1, 8, 2)

	for size, want := range []int{0, 0, 1, 2, 2, 2, 2, 2, 2, 2} {
		if got := several.setOf(size); got != want {
			t.Errorf("batch %d: set %d, expected %d", size, got, want)
		}
		if one.setOf(size) != 0 {
			t.Errorf("batch %d has a set of its own where there is one", size)
		}
	}
	for p, kind := range kinds(several) {
		a, b, c := several.set(0)[p], several.set(1)[p], several.set(2)[p]
		if own := a != b && b != c && a != c; own != (kind == "Conv") || !own && (a != b || b != c) {
			t.Errorf("%s has sessions of its own in each set: %t", kind, own)
		}
	}
	more, once := several.DeviceMemory(), one.DeviceMemory()
	const numbers, names = 4 * channels * (9*channels + 1), 100 // bytes of the convolution, and at most what describes them
	if grown := more.Weights - once.Weights; more.Sessions != once.Sessions+2 || more.Handles <= once.Handles || grown < 2*numbers || grown > 2*(numbers+names) {
		t.Errorf("three sets need %+v, one %+v", more, once)
	}

	// What runs is what was chosen: without the session of the second set, no batch of two.
	if err := several.set(1)[1].Close(); err != nil {
		t.Fatal(err)
	}
	several.closeAllIdle()
	for size, want := range map[int64]error{1: nil, 2: ort.ErrClosed, 3: nil} {
		if _, err := runAll(several, 1, queryOf(t, several, size, 0)); !errors.Is(err, want) {
			t.Errorf("batch %d: %v, expected %v", size, err, want)
		}
	}
	several.more[0][1] = several.sessions[1] // it is closed once

	device.sets = 3
	s, err := loadService(env, device, wire.LoadSpec{ModelPath: path, CacheDir: cache, CutTarget: -1, MaxBatch: 2}, func(string, int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	closeCut(t, s.CutModel)
	if device.sets != 2 {
		t.Errorf("%d sets for batches of up to 2", device.sets)
	}
}
