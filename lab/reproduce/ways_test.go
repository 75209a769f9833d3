package reproduce

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// quickPredictor is one of the models of the drawn quadruplets.
func quickPredictor(t *testing.T) (*predictor.File, *training.Dataset) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drawn.csv")
	writeFile(t, path, drawnGroups(150, 3, 1, 2, 3, 4))
	d, err := training.ReadPath(path)
	if err != nil {
		t.Fatal(err)
	}
	o := fit.DefaultOptions()
	o.Epochs = 2
	file, _, err := fit.Train(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	return file, d
}

// operatorsOf is the fake device with the operators of the drawn models.
type operatorsOf struct {
	fixed
	models []device.ModelInfo
}

func (o operatorsOf) Models() []device.ModelInfo { return o.models }

func (o operatorsOf) OperatorTimes(model, size, seqLen int) []int64 {
	return device.OperatorTimes(o.Latency, model, o.models[model].Operators, size, seqLen)
}

func drawnDevice(d *training.Dataset) operatorsOf {
	var o operatorsOf
	for _, m := range d.Models {
		info := device.ModelInfo{Name: m.Name, Operators: m.Operators, Sizes: []int{1, 2}, SeqLens: []int{0}}
		if m.Name == sequenceModel {
			info.SeqLens = []int{8, 16}
		}
		o.models = append(o.models, info)
	}
	return o
}

var (
	once      sync.Once
	drawnFile *predictor.File
	drawnRows *training.Dataset
)

// decide serves a trial of four services with so many ways.
func decide(t *testing.T, policy string, ways int) *waysRun {
	t.Helper()
	once.Do(func() { drawnFile, drawnRows = quickPredictor(t) })
	deploy := deployment{models: quadModels, target: manyTarget, seqLens: []int{8, 16}}
	for range quadModels {
		deploy.sizes = append(deploy.sizes, []int{1, 2})
	}
	v := variantNamed(policy)
	s := &stock{files: map[string]*predictor.File{v.recipe: drawnFile}}
	l := newLane()
	l.devices[s] = drawnDevice(drawnRows)
	r := &waysRun{variant: *v, ways: ways}
	if err := r.serve(l, &trial{stock: s, deploy: &deploy, variant: *v, arrivals: poisson(200), queries: 100, seed: 1}); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMoreWaysAskLess holds the search to its purpose: more groups in a call,
// and fewer calls.
func TestMoreWaysAskLess(t *testing.T) {
	one, many := decide(t, "abacus", 1), decide(t, "abacus", 16)
	if one.calls < 1 || one.groups < one.calls || one.median <= 0 {
		t.Errorf("one way: %+v", one)
	}
	if many.groups/many.calls <= one.groups/one.calls || many.calls > one.calls {
		t.Errorf("one way: %.2f groups a call, %.2f calls a round; sixteen: %.2f and %.2f", one.groups/one.calls, one.calls, many.groups/many.calls, many.calls)
	}
}
