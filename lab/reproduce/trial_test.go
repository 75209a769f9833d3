package reproduce

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// large is a device for the sizes of the paper, on which an operator takes an
// eighth of a millisecond for each query.
type large struct{ fixed }

func (d large) Models() []device.ModelInfo {
	list := d.fixed.Models()
	for i := range list {
		list[i].Sizes, list[i].SeqLens = []int{1, 4, 8, 16, 32}, append([]int{0}, pairSeqLens...)
	}
	return list
}

func (d large) Latency(g models.Group) time.Duration { return d.fixed.Latency(g) / 8 }

func (d large) OperatorTimes(whole models.Span) []int64 {
	return device.OperatorTimes(d.Latency, whole)
}

func (d large) Sample(g models.Group, _ *rand.Rand) time.Duration { return d.Latency(g) }

// stockOf is a stock of groups of these sets of models, without any device.
func stockOf(sets ...[]string) *stock {
	d := &training.Dataset{}
	for _, set := range sets {
		var row training.Row
		for _, m := range set {
			at := slices.IndexFunc(d.Models, func(k training.Model) bool { return k.Name == m })
			if at < 0 {
				at = len(d.Models)
				d.Models = append(d.Models, training.Model{Name: m, Operators: fixedOperators})
			}
			row.Group.Spans = append(row.Group.Spans, models.Span{Service: models.ServiceID(at), Size: 4})
		}
		d.Rows = append(d.Rows, row)
	}
	return &stock{name: "x", measured: d}
}

// runOf is a run of the command with a stock for pairs and quadruplets.
func runOf(o *Options, s *stock, names ...string) *reproduction {
	return &reproduction{
		options: o, variants: among(variants, names...), data: &data{quad: s.measured, minutes: []float64{45000}}, result: &Result{},
		stocks: map[stockKey]*stock{{pairsStock, 0}: s, {quadStock, 0}: s},
	}
}

// serve does what a run has planned on a device.
func serve(t *testing.T, r *reproduction, d sim.Device) error {
	t.Helper()
	return r.plan.run(t.Context(), func() *lane { return &lane{map[divided]sim.Device{{r.pairs(), 1}: d}} }, newTally(nil, 1))
}

var quadDevice = large{fixed{quadModels}}

func TestScenarioOfTrial(t *testing.T) {
	file := &predictor.File{}
	s := &stock{files: map[string]*predictor.File{fit.RecipePaper: file}}
	deploy := &deployment{
		models: []string{"resnet50", "bert"}, target: time.Second,
		sizes: [][]int{{1}, {1, 2}}, seqLens: []int{8},
	}
	of := func(v string) sim.Scenario {
		one := trial{stock: s, deploy: deploy, variant: *variantNamed(v), arrivals: poisson(7), queries: 3, seed: 5}
		return one.scenario(fixed{deploy.models})
	}
	sc := of("abacus-authors")
	if sc.Policy != "abacus" || sc.Predictor != file || sc.Queries != 3 || sc.Seed != 5 || !sc.Plan || sc.Arrivals.QPS != 7 {
		t.Errorf("%+v", sc)
	}
	if a, b := sc.Services[0], sc.Services[1]; a.SeqLens != nil || !slices.Equal(b.SeqLens, []int{8}) || a.Target != time.Second || b.Target != time.Second || len(b.Sizes) != 2 {
		t.Errorf("services %+v", sc.Services)
	}
	for name, want := range map[string]struct {
		knows string
		batch int
	}{
		"fcfs-authors": {sim.KnowsNothing, 1}, "sjf-authors": {sim.KnowsOrder, 1}, "edf-authors": {sim.KnowsNothing, 1}, "sjf-unmerged": {sim.KnowsAll, 1},
		"clockwork-unmerged": {sim.KnowsAll, 1}, "edf": {sim.KnowsAll, 2}, "overlap-unmerged": {sim.KnowsAll, 1}, "overlap": {sim.KnowsAll, 2}, // the device has no more
	} {
		if sc := of(name); sc.Knows != want.knows || sc.Services[0].MaxBatch != want.batch || sc.Validate() != nil {
			t.Errorf("%s knows %s and merges up to %d: %v", name, sc.Knows, sc.Services[0].MaxBatch, sc.Validate())
		}
	}
	if n := largest(fixed{}, "resnet50"); n != 1 {
		t.Errorf("a model that the device does not know is merged up to %d", n)
	}
}

// TestRunsEndWithFaults of the deployment, whichever figure they are for.
func TestRunsEndWithFaults(t *testing.T) {
	s, o := stockOf([]string{"resnet50", "bert"}, quadModels), DefaultOptions()
	o.Seeds, o.Queries = 1, 5
	for _, f := range figures {
		r := runOf(&o, s, "fcfs-authors", "clockwork-unmerged", "abacus-authors")
		if f.name == "10" || f.name == "credibility" || f.plan(r) == nil {
			continue // it does not serve, or what others do too
		}
		err := serve(t, r, large{fixed{[]string{"vgg16"}}})
		if err == nil || !strings.Contains(err.Error(), "resnet") && !strings.Contains(err.Error(), "model") {
			t.Errorf("%s on a device without the models: %v", f.name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.plan.run(ctx, newLane, newTally(nil, 1)); err == nil {
			t.Errorf("%s goes on though it is cancelled", f.name)
		}
	}
}
