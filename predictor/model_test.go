package predictor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// testFile returns a predictor of models with ten operators each, of 100 µs a
// piece, and hidden layers of random weights.
func testFile(models int, hidden ...int) *File {
	f := &File{
		Format: Format, Device: "test", Recipe: "random", Rows: 1000, Output: OutputRatio,
		Features: Features{Set: FeaturesModel, Spans: min(models, 6)},
		Test:     Errors{Rows: 100, MAPE: 3, Quantiles: Quantiles{P01: 0.9, P50: 1, P90: 1.05, P95: 1.07, P99: 1.1}},
	}
	for i := range models {
		m := FeatureModel{Name: string(rune('a' + i)), Operators: 10, MaxSize: 8, MaxSeqLen: i % 2 * 64}
		for _, size := range []int{1, 8} {
			c := CostCell{Size: size, SeqLen: m.MaxSeqLen}
			for range m.Operators {
				c.Micros = append(c.Micros, 100)
				c.Work = append(c.Work, 50)
			}
			m.Costs = append(m.Costs, c)
		}
		f.Features.Models = append(f.Features.Models, m)
	}
	widths := append([]int{f.Features.Width()}, hidden...)
	f.Layers = randomLayers(rand.New(rand.NewPCG(1, 2)), append(widths, 1)...)
	return f
}

func mustModel(t testing.TB, f *File) *model {
	t.Helper()
	m, err := newModel(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// constant makes a predictor answer base * ratio for every group.
func constant(f *File, ratio float64) *File {
	f.Layers = []Layer{{Inputs: f.Features.Width(), Outputs: 1,
		Weights: make([]float32, f.Features.Width()), Bias: []float32{float32(math.Log(ratio))}}}
	return f
}

// drawGroup returns a group that testFile(m) covers.
func drawGroup(t *rapid.T, m int) models.Group {
	order := rapid.Permutation(make([]int, m)).Draw(t, "none")
	for i := range order {
		order[i] = i
	}
	order = rapid.Permutation(order).Draw(t, "models")
	var g models.Group
	for _, id := range order[:rapid.IntRange(1, min(m, 6)).Draw(t, "spans")] {
		start := rapid.IntRange(0, 9).Draw(t, "start")
		g.Spans = append(g.Spans, span(models.ServiceID(id), start, rapid.IntRange(start+1, 10).Draw(t, "end"),
			rapid.IntRange(1, 8).Draw(t, "size"), id%2*rapid.IntRange(0, 64).Draw(t, "seq len")))
	}
	return g
}

func TestLatency(t *testing.T) {
	for _, c := range []struct {
		output          string
		base, out, want float64
	}{
		{OutputRatio, 100, 0, 100},
		{OutputRatio, 100, math.Log(0.5), 50},
		{OutputRatio, 1e-3, math.Inf(1), 1e-3 * math.Exp(maxExponent)},
		{OutputRatio, 1, math.Inf(-1), leastMicros},
		{OutputRatio, 1, math.NaN(), mostMicros},
		{OutputMicros, 1000, 2.5, 2500},
		{OutputMicros, 1000, -1, leastMicros},
		{OutputMicros, 1000, math.Inf(1), mostMicros},
		{OutputMicros, 0, math.Inf(1), mostMicros},
	} {
		if got := latency(c.output, c.base, c.out); math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("%s of %v at base %v: %v, want %v", c.output, c.out, c.base, got, c.want)
		}
	}
}

// manyGroups returns candidates as a search asks for them: the same models,
// and one of them with more operators from group to group.
func manyGroups(n int) []models.Group {
	groups := make([]models.Group, n)
	for i := range groups {
		groups[i].Spans = []models.Span{
			span(5, 3, 10, 8, 64), span(0, 0, 10, 4, 0), span(2, 0, 10, 1, 0), span(6, 0, 1+i%10, 8, 0),
		}
	}
	return groups
}

// BenchmarkPredict is what a search pays to ask about candidates: encoding
// and inference, on one core.
func BenchmarkPredict(b *testing.B) {
	for _, width := range []int{32, 64, 128} {
		m := mustModel(b, testFile(7, width, width, width))
		for _, n := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("3x%d/candidates=%d", width, n), func(b *testing.B) {
				groups, micros := manyGroups(n), make([]float64, n)
				b.ReportAllocs()
				for b.Loop() {
					m.predict(groups, micros)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/candidate")
			})
		}
	}
}
