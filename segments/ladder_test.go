package segments

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

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
func (g *graph) conv(in, out string, bias bool) string {
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
	return g.node("Conv", inputs, list(out), pads(1, 1, 1, 1))
}

func pads(sizes ...uint64) []byte {
	var packed []byte
	for _, s := range sizes {
		packed = protowire.AppendVarint(packed, s)
	}
	return models.AppendInt(models.AppendField(models.AppendString(nil, 1, "pads"), 8, packed), 20, 7)
}

// kinds returns the operators of a model that is cut at every node, in order.
func kinds(m *CutModel) (kinds []string) {
	for _, op := range m.Model().Operators {
		kinds = append(kinds, op.Type)
	}
	return kinds
}

// expectSame runs both models with batches of several sizes, in turns, and expects the
// same results to the bit.
func expectSame(t *testing.T, a, b *CutModel, sizes ...int64) {
	t.Helper()
	for _, size := range sizes {
		q := randomQuery(t, a.Model(), size, 0, rand.New(rand.NewPCG(3, uint64(size))))
		got, err := runAll(a, 1, q)
		want, werr := runAll(b, 1, q)
		thaw(q)
		if err != nil || werr != nil {
			t.Fatal(err, werr)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("batch %d: results differ", size)
		}
	}
}

// TestRungs runs batches of several sizes in sessions of their own where a model has
// convolutions, and in the same ones elsewhere.
func TestRungs(t *testing.T) {
	g := imageGraph()
	g.node("Sigmoid", list(g.conv(g.node("Relu", list(g.conv("x", "a", true)), list("b")), "c", true)), list("y"))
	g.output("y", models.Float32)
	env, path, cache := openEnv(t), g.write(t), t.TempDir()
	device, fake := openFakeGPU(t, env, fakeSpec{})
	fake.onnx = true
	several := openCut(t, env, Config{Path: path, CacheDir: cache, Device: device, Rungs: 3})
	one := openCut(t, env, Config{Path: path, CacheDir: cache, Device: device})
	if want := list("Conv", "Relu", "Conv", "Sigmoid"); !slices.Equal(kinds(several), want) {
		t.Fatalf("operators %v, expected %v", kinds(several), want)
	}
	expectSame(t, several, one, 1, 2, 5, 3, 4, 1, 8, 2)

	for size, want := range []int{0, 0, 1, 2, 2, 2, 2, 2, 2, 2} {
		if got := several.loaded.setOf(size); got != want {
			t.Errorf("batch %d: set %d, expected %d", size, got, want)
		}
		if one.loaded.setOf(size) != 0 {
			t.Errorf("batch %d has a set of its own where there is one", size)
		}
	}
	for p, kind := range kinds(several) {
		a, b, c := several.loaded.set(0)[p], several.loaded.set(1)[p], several.loaded.set(2)[p]
		if own := a != b && b != c && a != c; own != (kind == "Conv") || !own && (a != b || b != c) {
			t.Errorf("%s has sessions of its own in each set: %t", kind, own)
		}
	}
	more, once := several.DeviceMemory(), one.DeviceMemory()
	const numbers, names = 2 * 4 * channels * (9*channels + 1), 200 // bytes of both convolutions, and at most what describes them
	if grown := more.Weights - once.Weights; more.Sessions != once.Sessions+4 || more.Handles <= once.Handles || grown < 2*numbers || grown > 2*(numbers+names) {
		t.Errorf("three sets need %+v, one %+v", more, once)
	}

	// What runs is what was chosen: without the session of the second set, no batch of two.
	if err := several.loaded.set(1)[2].Close(); err != nil {
		t.Fatal(err)
	}
	several.pool.closeAllIdle()
	for size, want := range map[int64]error{1: nil, 2: ort.ErrClosed, 3: nil} {
		if _, err := runAll(several, 1, queryOf(t, several, size, 0)); !errors.Is(err, want) {
			t.Errorf("batch %d: %v, expected %v", size, err, want)
		}
	}
	several.loaded.more[0][2] = several.loaded.sessions[2] // it is closed once
}

// TestRungsOfService: a worker has sessions for each size of the ladder up to the largest
// batch, also where it chooses a cut, and says that there are convolutions.
func TestRungsOfService(t *testing.T) {
	g := imageGraph()
	g.node("Sigmoid", list(g.conv("x", "a", true)), list("y"))
	g.output("y", models.Float32)
	env, path := openEnv(t), g.write(t)
	device, fake := openFakeGPU(t, env, fakeSpec{})
	fake.onnx = true
	for most, want := range map[int]int{0: 1, 1: 1, 2: 2, 5: 4, 8: 4, 32: 6} {
		for name, spec := range map[string]wire.LoadSpec{"as said": {CutTarget: -1}, "chosen": {Choose: &wire.ChooseSpec{BudgetNanos: int64(time.Minute)}}} {
			spec.ModelPath, spec.CacheDir, spec.MaxBatch = path, t.TempDir(), most
			s, err := loadService(env, device, spec, func(string, int64, int64) {})
			if err != nil {
				t.Fatal(err)
			}
			if sets := 1 + len(s.model.loaded.more); sets != want || !s.Info().Convolutions {
				t.Errorf("%s, up to %d: %d sets, want %d; convolutions %t", name, most, sets, want, s.Info().Convolutions)
			}
			closeCut(t, s.model)
		}
	}
}
