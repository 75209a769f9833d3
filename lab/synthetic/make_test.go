package synthetic

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

var update = flag.Bool("update", false, "make the files anew")

// The GPU that nobody has. Its peak rates and multiprocessors are those of the data sheet
// of NVIDIA's A100 with 40 GB, with TF32 as engines use it by default. What kernels attain
// of them, and what a launch costs, are assumptions.
const (
	name = "a synthetic GPU"

	peakFLOPs     = 156e12 * 0.5   // a second
	peakBytes     = 1.555e12 * 0.8 // a second
	processors    = 108            // each runs one thread block at a time
	blockSums     = 1 << 21        // multiply-adds that a thread block does at most
	blockNumbers  = 1 << 13        // numbers that it reads and writes at most
	launch        = 20e-6          // seconds that an operator takes whatever it does
	numberBytes   = 4
	interference  = 1.1 // work beside other work, for the caches that they share
	spansAtOnce   = 3
	groupsSampled = 2500
)

var (
	created = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	sizes   = []int{1, 2, 4, 8, 16, 32}
)

// cost returns what an operator takes alone for a batch, and how long it keeps the
// device busy, both in microseconds. The roofline says what it needs of the device. It
// does not get all of that alone: the last wave of its thread blocks leaves
// multiprocessors idle, which is what others can use, and its launch keeps nothing busy.
func (o op) cost(batch float64) (micros, work float64) {
	busy := max(o.flops*batch/peakFLOPs, (o.moved*batch+o.weights)*numberBytes/peakBytes)
	blocks := math.Ceil(max(o.flops*batch/2/blockSums, (o.moved*batch+o.weights)/blockNumbers))
	waves := math.Ceil(blocks / processors)
	filled := blocks / (waves * processors)
	round := func(seconds float64) float64 { return math.Round(seconds*1e8) / 1e2 }
	return round(launch + busy/filled), round(busy * interference)
}

func cell(ops []op, size, seqLen int) predictor.CostCell {
	c := predictor.CostCell{Size: size, SeqLen: seqLen}
	for _, o := range ops {
		micros, work := o.cost(float64(size))
		c.Micros, c.Work = append(c.Micros, micros), append(c.Work, work)
	}
	return c
}

func modelOf(name string, seqLens []int, ops func(seqLen int) []op) predictor.FeatureModel {
	m := predictor.FeatureModel{Name: name, Operators: len(ops(seqLens[0])), MaxSize: sizes[len(sizes)-1], MaxSeqLen: seqLens[len(seqLens)-1]}
	for _, seqLen := range seqLens {
		for _, size := range sizes {
			m.Costs = append(m.Costs, cell(ops(seqLen), size, seqLen))
		}
	}
	return m
}

// makeDevice returns the device: a group takes as long as its longest span, or as all
// its work, with the corner between the two rounded (predictor.Together), and 30 µs.
func makeDevice() *device.Profile {
	fixed := func(name string, ops []op) predictor.FeatureModel {
		return modelOf(name, []int{0}, func(int) []op { return ops })
	}
	list := []predictor.FeatureModel{
		modelOf("bert", []int{8, 16, 32, 64}, func(seqLen int) []op { return bert(float64(seqLen)) }),
		fixed("inception_v3", inception()),
		fixed("resnet152", resnet(3, 8, 36, 3)),
		fixed("resnet50", resnet(3, 4, 6, 3)),
		fixed("vgg19", vgg(2, 2, 4, 4, 4)),
	}
	width := device.NewEncoder(list).Width
	weights := make([]float32, width)
	weights[width-4] = 0.3 // of the base, which counts with the power 0.7 by itself
	exact := predictor.Errors{Rows: 1, Quantiles: predictor.Quantiles{P01: 1, P50: 1, P90: 1, P95: 1, P99: 1}}
	p := &device.Profile{
		Format: device.Format, Device: name, Created: created, Rows: 1,
		Spread: device.Spread{Slow: 1, Fast: 0.5, Bands: []device.SpreadBand{
			{Spans: 1, Parts: []float64{0.01, 0.02, 0.04}}, {Spans: 2, Parts: []float64{0.02, 0.04, 0.08}},
		}},
	}
	p.Network.Spans, p.Network.Models = spansAtOnce, list
	p.Network.Layers = []predictor.Layer{{Inputs: width, Outputs: 1, Weights: weights, Bias: []float32{0}}}
	p.Test.Alone, p.Test.Several = exact, exact
	return p
}

// measure measures groups on the device as a daemon measures them on a real one.
func measure(t *testing.T, seed uint64) (*training.Dataset, map[string][]training.OperatorTimes) {
	t.Helper()
	p := makeDevice()
	on, err := device.NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	o := training.DefaultSessionOptions(groupsSampled)
	o.Spans, o.Seed = spansAtOnce, seed
	for i, m := range on.Models() {
		seqLens := m.SeqLens
		if p.Network.Models[i].MaxSeqLen == 0 {
			seqLens = nil
		}
		o.Add(training.Model{Name: m.Name, Operators: m.Operators}, m.Sizes, seqLens)
	}
	s := training.NewSession(o, &training.Dataset{}, nil)
	d, operators := &training.Dataset{Device: name, Models: s.Models()}, map[string][]training.OperatorTimes{}
	random := rand.New(rand.NewPCG(seed, 2))
	for {
		step, ok := s.Next()
		if !ok {
			return d, operators
		}
		if !step.Operators {
			took := on.Sample(step.Group, random)
			if row, ok := s.Took(took, 0, took); ok {
				d.Rows = append(d.Rows, row)
			}
			continue
		}
		whole := step.Group.Spans[0]
		var took []time.Duration
		for i := range whole.End {
			one := whole
			one.Start, one.End = i, i+1
			took = append(took, on.Sample(models.Group{Spans: []models.Span{one}}, random))
		}
		if m, times, ok := s.TookOperators(took, 0); ok {
			operators[m.Name] = append(operators[m.Name], times)
		}
	}
}

// The device is what the formulas give. Run with -update after changing them.
func TestDevice(t *testing.T) {
	made := makeDevice()
	if *update {
		if err := made.WriteFile("gpu.device.json"); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(made, Device()); diff != "" {
		t.Error(diff)
	}
}

// The predictor is as good as it says, on groups that it was not trained on. With
// -update it is trained from scratch, on groups that were measured as a daemon measures them.
func TestPredictor(t *testing.T) {
	if *update {
		d, operators := measure(t, 1)
		o := fit.DefaultOptions()
		o.Operators = operators
		f, _, err := fit.Train(t.Context(), d, o)
		if err != nil {
			t.Fatal(err)
		}
		f.Created = created
		if err := f.WriteFile("gpu.predictor.json"); err != nil {
			t.Fatal(err)
		}
		t.Logf("off by %.2f %%", f.Test.MAPE)
		return
	}
	d, _ := measure(t, 2)
	var groups []models.Group
	for _, row := range d.Rows {
		groups = append(groups, row.Group)
	}
	f := Predictor()
	predicted, err := f.Predict(groups)
	if err != nil {
		t.Fatal(err)
	}
	var off float64
	for i, row := range d.Rows {
		off += 100 * math.Abs(predicted[i]/row.Median-1) / float64(len(d.Rows))
	}
	if f.Test.MAPE > 2.5 || off > f.Test.MAPE+0.5 {
		t.Errorf("off by %.2f %% on other groups, %.2f %% as it says", off, f.Test.MAPE)
	}
}
