package overlap_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
)

// The services of a device: each has as many operators, all take as long, and
// a batch of maxSize takes twice as long as one of a single query.
const (
	operators = 100
	opMicros  = 50.0
	maxSize   = 8
)

// operatorMicros is what each operator takes alone, and half of it that it keeps
// the device busy.
func operatorMicros(size int) float64 { return opMicros * (1 + float64(size-1)/(maxSize-1)) }

func services(n, batch int, target time.Duration) []models.Service {
	var list []models.Service
	for i := range n {
		list = append(list, models.Service{
			ID: models.ServiceID(i), Name: string(rune('a' + i)), Operators: operators,
			QoSTarget: target, QueueLimit: 100, MaxBatch: batch,
		})
	}
	return list
}

// trainedSpans is of how many spans the groups are that a daemon trains its network on.
const trainedSpans = 4

// newPredictor returns a predictor with a network whose weights are random, and
// small in the last layer: it says about what it is told of the costs.
func newPredictor(t testing.TB, n int, hidden ...int) *predictor.Predictor {
	t.Helper()
	counts := make([]int, n)
	bind := make([]int, n)
	for i := range counts {
		counts[i], bind[i] = operators, i
	}
	solo, err := predictor.NewSolo(counts...)
	if err != nil {
		t.Fatal(err)
	}
	f := &predictor.File{
		Format: predictor.Format, Device: "test", Recipe: "random", Rows: 1, Output: predictor.OutputRatio,
		Features: predictor.Features{Set: predictor.FeaturesModel, Spans: min(max(n, 2), trainedSpans)},
		Test:     predictor.Errors{Rows: 1, Quantiles: predictor.Quantiles{P01: 0.95, P50: 1, P90: 1.02, P95: 1.03, P99: 1.05}},
	}
	for i := range n {
		m := predictor.FeatureModel{Name: string(rune('a' + i)), Operators: operators, MaxSize: maxSize}
		for size := 1; size <= maxSize; size++ {
			c := predictor.CostCell{Size: size}
			nanos := make([]int64, operators)
			for k := range operators {
				c.Micros = append(c.Micros, operatorMicros(size))
				c.Work = append(c.Work, 0.5*operatorMicros(size))
				nanos[k] = int64(1000 * operatorMicros(size))
			}
			m.Costs = append(m.Costs, c)
			if err := solo.SetOperators(models.ServiceID(i), size, 0, nanos); err != nil {
				t.Fatal(err)
			}
		}
		f.Features.Models = append(f.Features.Models, m)
	}
	f.Layers = layers(append(append([]int{f.Features.Width()}, hidden...), 1))
	p := predictor.New(solo)
	if err := p.Use(f, bind); err != nil {
		t.Fatal(err)
	}
	return p
}

// layers returns weights that hardly move what the last bias says.
func layers(widths []int) (list []predictor.Layer) {
	random := rand.New(rand.NewPCG(1, 2))
	for i, outputs := range widths[1:] {
		l := predictor.Layer{Inputs: widths[i], Outputs: outputs, Bias: make([]float32, outputs)}
		for range l.Inputs * l.Outputs {
			l.Weights = append(l.Weights, float32(random.NormFloat64()/math.Sqrt(float64(l.Inputs))))
		}
		list = append(list, l)
	}
	last := &list[len(list)-1]
	for i := range last.Weights {
		last.Weights[i] *= 0.002
	}
	return list
}
