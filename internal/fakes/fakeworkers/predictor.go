package fakeworkers

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// DeviceName is a device of fake workers that is called "fake", as datasets and predictors name it.
const DeviceName = "fake, ONNX Runtime 0"

// Predictor is a predictor that knows so many services of a rig, and predicts
// that groups take 60 % of what they take one after another.
func Predictor(services int) *predictor.File {
	f := &predictor.File{
		Format: predictor.Format, Device: DeviceName, Created: time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC),
		Recipe: "test", Rows: 1000, Output: predictor.OutputMicros,
		Features: predictor.Features{Set: predictor.FeaturesModel, Spans: min(services, 4)},
		Test:     predictor.Errors{Rows: 100, MAPE: 3, Quantiles: predictor.Quantiles{P01: 0.9, P50: 1, P90: 1.05, P95: 1.07, P99: 1.1}},
	}
	for i := range services {
		m := Model(i, Operators)
		known := predictor.FeatureModel{Name: m.Name, Hash: m.Hash, Operators: m.Operators, MaxSize: 4}
		for _, size := range []int{1, 4} {
			c := predictor.CostCell{Size: size}
			for o := range m.Operators {
				micros := float64(Calm.Span(models.Span{Service: models.ServiceID(i), Start: o, End: o + 1, Size: size})) / 1e3
				c.Micros, c.Work = append(c.Micros, micros), append(c.Work, Calm.Overlap*micros)
			}
			known.Costs = append(known.Costs, c)
		}
		f.Features.Models = append(f.Features.Models, known)
	}
	width := f.Features.Width()
	f.Layers = []predictor.Layer{{Inputs: width, Outputs: 1, Weights: make([]float32, width), Bias: []float32{1}}}
	return f
}

// Model is the model of a service of a rig as it stands in datasets.
func Model(service, operators int) training.Model {
	return training.Model{Name: Config(service+1, nil).Services[service].Name, Hash: Hash(service, operators) + "/1 threads", Operators: operators}
}

// Rows returns how many spans the groups have that were measured, and
// fails the test where a row is not what the device takes.
func Rows(t *testing.T, d *training.Dataset, device *Device) (spans map[int]int) {
	t.Helper()
	spans = map[int]int{}
	for _, row := range d.Rows {
		var group []executor.SpanOutcome
		for _, s := range row.Group.Spans {
			var service models.ServiceID
			if _, err := fmt.Sscanf(d.Models[s.Service].Name, "s%d", &service); err != nil {
				t.Fatal(err)
			}
			s.Service = service
			group = append(group, executor.SpanOutcome{SpanOutcome: models.SpanOutcome{Span: s}})
		}
		if want := float64(device.Group(group)) / 1e3; math.Abs(row.Median-want) > 0.01 || row.Repeats != 3 {
			t.Errorf("%v: %v µs in %d runs, want %v in 3", row.Group, row.Median, row.Repeats, want)
		}
		spans[len(row.Group.Spans)]++
	}
	return spans
}
