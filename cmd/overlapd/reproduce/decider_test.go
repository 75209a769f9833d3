package reproduce

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// quickPredictor is one of the models of the drawn quadruplets.
func quickPredictor(t *testing.T) (*predictor.File, *training.Dataset) {
	t.Helper()
	d, err := training.ReadCSV(strings.NewReader(drawnGroups(400, 3, 1, 2, 3, 4)), "drawn")
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

func decide(t *testing.T, policy string, ways int) *decider {
	t.Helper()
	once.Do(func() { drawnFile, drawnRows = quickPredictor(t) })
	file, d := drawnFile, drawnRows
	on := drawnDevice(d)
	deploy := deployment{models: quadModels, seqLens: []int{8, 16}}
	for range quadModels {
		deploy.sizes = append(deploy.sizes, []int{1, 2})
		deploy.targets = append(deploy.targets, manyTarget)
	}
	v := variantNamed(policy)
	trial := trial{stock: &stock{files: map[string]*predictor.File{v.recipe: file}}, deploy: &deploy, variant: *v, arrivals: poisson(80), queries: 100, seed: 1}
	k, err := newDecider(on, trial.scenario(on), file, ways)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.serve(rand.New(rand.NewPCG(1, 2))); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestDecider(t *testing.T) {
	k := decide(t, "overlap", 4)
	if !k.scheduler.Idle() || k.rounds == 0 || k.rounds > 100 || len(k.took) != k.rounds {
		t.Errorf("%d rounds, %d times, idle is %t", k.rounds, len(k.took), k.scheduler.Idle())
	}
	if k.predictor.calls < k.rounds || k.predictor.groups < k.predictor.calls {
		t.Errorf("%d calls about %d groups in %d rounds", k.predictor.calls, k.predictor.groups, k.rounds)
	}
}

// TestMoreWaysAskLess holds the search to its purpose: more groups in a call,
// and fewer calls.
func TestMoreWaysAskLess(t *testing.T) {
	one, many := decide(t, "abacus", 1), decide(t, "abacus", 16)
	perCall := func(k *decider) float64 { return float64(k.predictor.groups) / float64(k.predictor.calls) }
	perRound := func(k *decider) float64 { return float64(k.predictor.calls) / float64(k.rounds) }
	if perCall(many) <= perCall(one) || perRound(many) > perRound(one) {
		t.Errorf("one way: %.2f groups a call, %.2f calls a round; sixteen: %.2f and %.2f", perCall(one), perRound(one), perCall(many), perRound(many))
	}
}

func TestDeciderRefusesUnknownModel(t *testing.T) {
	sc := sim.Scenario{Services: []sim.Service{{Name: "vgg16", Target: time.Second}}}
	if _, err := newDecider(fixed{[]string{"bert"}}, sc, &predictor.File{}, 1); !errors.Is(err, ErrData) {
		t.Errorf("%v", err)
	}
}
