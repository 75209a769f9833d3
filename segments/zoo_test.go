package segments

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/segments/wire"
)

// zooVariable set to "all" makes TestZoo build and run every model of the zoo,
// which takes minutes and gigabytes.
const zooVariable = "OVERLAPD_TEST_ZOO"

// TestZoo compares models of the zoo, cut at every node, with the whole.
func TestZoo(t *testing.T) {
	names := list("tiny_add", "tiny_identity", "tiny_mlp", "tiny_cnn", "tiny_bert")
	switch {
	case os.Getenv(zooVariable) == "all":
		names = zoo.Names()
	case !testing.Short() && !raceEnabled:
		names = append(names, "resnet50", "resnet50-fp16", "bert", "bert-fp16")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			lengths := []int64{16}
			if strings.Contains(name, "bert") {
				lengths = []int64{16, 64}
			}
			compareZoo(t, name, lengths)
		})
	}
}

// TestFusedBERT compares a model that somebody else's optimizer has fused.
func TestFusedBERT(t *testing.T) { compareCut(t, fusedBERT(t), []int64{5, 16}) }

// fusedBERT writes two layers of attention as ONNX Runtime's optimizer for transformers
// fuses them: with all weights of a product in one, and with rotary embedding.
func fusedBERT(t *testing.T) string {
	const hidden, wide, heads, vocabulary, longest = 8, 16, 2, 3, 64
	g := newGraph()
	g.parts.Opsets = append(g.parts.Opsets, opsetID("com.microsoft", 1))
	r := rand.New(rand.NewPCG(3, 4))
	weights := func(name string, dims ...int64) string {
		return g.weights(name, models.Float32, dims, randomData(models.Tensor{Type: models.Float32, Shape: dims}, r))
	}
	fused := func(op string, in, out []string, attributes ...[]byte) string {
		g.parts.Nodes = append(g.parts.Nodes, nodeProto(op, "com.microsoft", in, out, attributes...))
		return out[0]
	}
	product := func(of, name string, from, to int64) string {
		return g.node("MatMul", list(of, weights("w "+name, from, to)), list(name))
	}
	add := func(x, y, name string) string {
		return fused("SkipLayerNormalization", list(x, y, weights("gamma "+name, hidden), weights("beta "+name, hidden), weights("bias "+name, hidden)), list(name))
	}
	g.input("ids", models.Int32, open, open)
	g.input("mask", models.Int32, open, open)
	x := fused("EmbedLayerNormalization", list("ids", "", weights("words", vocabulary, hidden), weights("positions", longest, hidden), "",
		weights("gamma", hidden), weights("beta", hidden), "", "mask"), list("x", "lengths"))
	attention := fused("Attention", list(x, weights("qkv", hidden, 3*hidden), weights("qkv bias", 3*hidden), "lengths"), list("attention"), intAttribute("num_heads", heads))
	x = add(attention, x, "first")
	gelu := fused("BiasGelu", list(product(x, "up", hidden, wide), weights("up bias", wide)), list("gelu"))
	x = add(product(gelu, "down", wide, hidden), x, "second")
	at := g.weights("at", models.Int64, []int64{1}, make([]byte, 8))
	sines, cosines := weights("sines", longest, hidden/heads/2), weights("cosines", longest, hidden/heads/2)
	turned := func(name string) string {
		return fused("RotaryEmbedding", list(product(x, name, hidden, hidden), at, cosines, sines), list("turned "+name), intAttribute("num_heads", heads))
	}
	many := fused("MultiHeadAttention", list(turned("query"), turned("key"), product(x, "value", hidden, hidden)), list("many"), intAttribute("num_heads", heads))
	g.output(add(many, x, "y"), models.Float32)
	return g.write(t)
}

func compareZoo(t *testing.T, name string, lengths []int64) { compareCut(t, openZoo(t, name), lengths) }

// compareCut compares the model at path, cut at every node, with the whole. All its
// intermediates have a place in the memory of a batch.
func compareCut(t *testing.T, path string, lengths []int64) {
	env := openEnv(t)
	m, w := openCut(t, env, Config{Path: path, Units: 2}), openWhole(t, env, path)
	t.Logf("%d operators", len(m.Model().Operators))
	for _, size := range []int64{1, 3} {
		for _, length := range lengths {
			q := randomQuery(t, m.Model(), size, length, rand.New(rand.NewPCG(1, 1)))
			want, err := w.run([]wire.QueryTensors{q})
			if err != nil {
				t.Fatal(err)
			}
			for run := range 4 {
				got, err := runShare(m, 1, run%2, q)
				if err == nil {
					err = compare(got, want)
				}
				if err != nil {
					t.Errorf("batch %d, length %d, run %d: %v", size, length, run, err)
				}
			}
			thaw(q)
		}
	}
	for _, entry := range m.pool.layouts {
		for _, pc := range m.loaded.cut.pieces {
			for _, id := range pc.outputs {
				if entry.buffer[id] < 0 {
					t.Errorf("%s has no place in memory", m.loaded.cut.values.Names[id])
				}
			}
		}
	}
}
