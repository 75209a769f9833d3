package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// formulaPredictor returns a predictor of the models of a formula, whose
// weights are random. It predicts roughly the costs that it receives, and is off by a few
// percent.
func formulaPredictor(t testing.TB, f *formula, seed uint64) *predictor.File {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	file := &predictor.File{
		Format: predictor.Format, Device: "formula", Recipe: "random", Rows: 1, Output: predictor.OutputRatio,
		Features: predictor.Features{Set: predictor.FeaturesModel, Spans: max(len(f.models), 2)},
		Test:     predictor.Errors{Rows: 1, Quantiles: predictor.Quantiles{P01: 0.9, P50: 1, P90: 1.05, P95: 1.08, P99: 1.1}},
	}
	for i, m := range f.models {
		fm := predictor.FeatureModel{Name: m.Name, Operators: m.Operators, MaxSize: m.Sizes[len(m.Sizes)-1]}
		for _, size := range m.Sizes {
			c := predictor.CostCell{Size: size}
			one := float64(f.Latency(models.Group{Spans: []models.Span{{Service: models.ServiceID(i), End: 1, Size: size}}})) / 1e3
			for range m.Operators {
				c.Micros, c.Work = append(c.Micros, one), append(c.Work, f.part*one)
			}
			fm.Costs = append(fm.Costs, c)
		}
		file.Features.Models = append(file.Features.Models, fm)
	}
	widths := []int{file.Features.Width(), 8, 1}
	for i, outputs := range widths[1:] {
		l := predictor.Layer{Inputs: widths[i], Outputs: outputs, Bias: make([]float32, outputs)}
		scale := []float64{1, 0.03}[i] / math.Sqrt(float64(l.Inputs))
		for range l.Inputs * l.Outputs {
			l.Weights = append(l.Weights, float32(random.NormFloat64()*scale))
		}
		file.Layers = append(file.Layers, l)
	}
	return file
}
