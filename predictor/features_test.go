package predictor

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

func twoModels(set string) *Features {
	return &Features{
		Set: set, Spans: 2,
		Models: []FeatureModel{
			{Name: "a", Operators: 3, MaxSize: 8, Costs: []CostCell{
				{Size: 8, Micros: []float64{400, 400, 800}, Work: []float64{400, 400, 800}},
				{Size: 2, Micros: []float64{100, 100, 200}, Work: []float64{10, 20, 30}},
			}},
			{Name: "b", Operators: 2, MaxSize: 2, MaxSeqLen: 64, Costs: []CostCell{
				{Size: 1, SeqLen: 16, Micros: []float64{50, 50}, Work: []float64{5, 5}},
				{Size: 2, SeqLen: 64, Micros: []float64{90, 90}, Work: []float64{45, 45}},
				{Size: 2, SeqLen: 16, Micros: []float64{60, 60}, Work: []float64{5, 5}},
				{Size: 1, SeqLen: 64, Micros: []float64{70, 70}, Work: []float64{5, 5}},
			}},
		},
	}
}

func groupOf(spans ...models.Span) models.Group { return models.Group{Spans: spans} }

func part(model models.ServiceID, start, end, size, seqLen int) models.Span {
	return models.Span{Service: model, Start: start, End: end, Size: size, SeqLen: seqLen}
}

func encode(t testing.TB, e *encoder, g models.Group) ([]float32, float64) {
	t.Helper()
	if !e.features.Covers(g) {
		t.Fatalf("%v is not covered", g)
	}
	inputs := make([]float32, e.width)
	for i := range inputs {
		inputs[i] = float32(math.NaN()) // Encode must set every one
	}
	base := e.encode(g, inputs)
	return inputs, base
}

func TestEncodePaper(t *testing.T) {
	e := newEncoder(twoModels(FeaturesPaper))
	for _, c := range []struct {
		g    models.Group
		want []float32
	}{
		{groupOf(part(1, 0, 2, 2, 64), part(0, 1, 3, 8, 0)), []float32{1, 1, 1, 3, 8, 0, 0, 2, 2, 64}},
		{groupOf(part(1, 1, 2, 1, 16)), []float32{0, 1, 1, 2, 1, 16, 0, 0, 0, 0}},
	} {
		got, base := encode(t, e, c.g)
		if diff := cmp.Diff(c.want, got); diff != "" || base != 1000 {
			t.Errorf("base %v, inputs:\n%s", base, diff)
		}
	}
}

// Two spans that leave the device idle take as long as the longer one; two
// that fill it take as long as both.
func TestBaseIsLongestOrSum(t *testing.T) {
	f := twoModels(FeaturesModel)
	e := newEncoder(f)
	_, idle := encode(t, e, groupOf(part(0, 0, 3, 2, 0), part(1, 0, 2, 1, 16)))
	if idle < 400 || idle > 405 {
		t.Errorf("400 and 100 that overlap take %v", idle)
	}
	_, busy := encode(t, e, groupOf(part(0, 0, 1, 8, 0), part(1, 0, 2, 2, 64)))
	if busy < 490 || busy > 520 {
		t.Errorf("400 and 90 of work take %v", busy)
	}
}

func TestCostsBetweenCells(t *testing.T) {
	f := twoModels(FeaturesModel)
	f.Models[0].MaxSize = 16
	e := newEncoder(f)
	for _, c := range []struct {
		span models.Span
		want float64
	}{
		{part(0, 0, 3, 2, 0), 400},
		{part(0, 0, 3, 5, 0), 1000},
		{part(0, 0, 3, 8, 0), 1600},
		{part(0, 0, 3, 1, 0), 400},   // no less than the smallest cell
		{part(0, 0, 3, 16, 0), 1600}, // no more than the largest
		{part(1, 0, 2, 1, 16), 100},
		{part(1, 0, 2, 1, 40), 120},
		{part(1, 0, 2, 2, 40), 150},
		{part(1, 1, 2, 2, 8), 60},
	} {
		if _, got := encode(t, e, groupOf(c.span)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v takes %v, want %v", c.span, got, c.want)
		}
	}
}

// manyModels draws features with costs, and a group that they cover.
func manyModels(t *rapid.T, set string) (*Features, models.Group) {
	f := &Features{Set: set, Spans: rapid.IntRange(1, 6).Draw(t, "spans")}
	var g models.Group
	for i := range 6 {
		m := FeatureModel{Name: string(rune('a' + i)), Operators: rapid.IntRange(1, 5).Draw(t, "operators"), MaxSize: 8}
		for _, size := range []int{1, 3, 8} {
			c := CostCell{Size: size}
			for range m.Operators {
				micros := rapid.Float64Range(1e-3, 1e6).Draw(t, "micros")
				c.Micros = append(c.Micros, micros)
				c.Work = append(c.Work, micros*rapid.Float64Range(0, 2).Draw(t, "share"))
			}
			m.Costs = append(m.Costs, c)
		}
		f.Models = append(f.Models, m)
		if len(g.Spans) < f.Spans {
			start := rapid.IntRange(0, m.Operators-1).Draw(t, "start")
			g.Spans = append(g.Spans, part(models.ServiceID(i), start,
				rapid.IntRange(start+1, m.Operators).Draw(t, "end"), rapid.IntRange(1, 8).Draw(t, "size"), 0))
		}
	}
	return f, g
}

func TestInputsAreFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, g := manyModels(t, FeaturesModel)
		if err := f.Validate(); err != nil {
			t.Fatal(err)
		}
		e := newEncoder(f)
		inputs := make([]float32, e.width)
		if base := e.encode(g, inputs); !(base > 0) || math.IsInf(base, 0) {
			t.Fatalf("base %v", base)
		}
		for i, x := range inputs {
			if math.Abs(float64(x)) > 1e3 || x != x {
				t.Fatalf("input %d is %v", i, x)
			}
		}
	})
}

func TestValidateRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Features){
		"set":           func(f *Features) { f.Set = "other" },
		"no spans":      func(f *Features) { f.Spans = 0 },
		"spans":         func(f *Features) { f.Spans = MaxSpans + 1 },
		"no models":     func(f *Features) { f.Models = nil },
		"models":        func(f *Features) { f.Models = make([]FeatureModel, MaxFeatureModels+1) },
		"no name":       func(f *Features) { f.Models[0].Name = "" },
		"name twice":    func(f *Features) { f.Models[0].Name = "b" },
		"operators":     func(f *Features) { f.Models[0].Operators = 0 },
		"size":          func(f *Features) { f.Models[0].MaxSize = 0 },
		"sequence":      func(f *Features) { f.Models[0].MaxSeqLen = -1 },
		"no costs":      func(f *Features) { f.Models[0].Costs = nil },
		"cells":         func(f *Features) { f.Models[0].Costs = make([]CostCell, MaxCells+1) },
		"no grid":       func(f *Features) { f.Models[1].Costs = f.Models[1].Costs[1:] },
		"cell twice":    func(f *Features) { f.Models[0].Costs[1].Size = 8 },
		"cell's size":   func(f *Features) { f.Models[0].Costs[1].Size = 0 },
		"cell's length": func(f *Features) { f.Models[0].Costs[1].Micros = []float64{1} },
		"work missing":  func(f *Features) { f.Models[0].Costs[1].Work = nil },
		"NaN":           func(f *Features) { f.Models[0].Costs[1].Micros[0] = math.NaN() },
		"infinite":      func(f *Features) { f.Models[0].Costs[1].Micros[0] = math.Inf(1) },
		"zero":          func(f *Features) { f.Models[0].Costs[1].Micros[0] = 0 },
		"work":          func(f *Features) { f.Models[0].Costs[1].Work[0] = -1 },
		"work NaN":      func(f *Features) { f.Models[0].Costs[1].Work[0] = math.NaN() },
	} {
		f := twoModels(FeaturesModel)
		spoil(f)
		if err := f.Validate(); err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
