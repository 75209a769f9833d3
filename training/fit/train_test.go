package fit

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

func train(t *testing.T, d *training.Dataset, o Options) (*predictor.File, *Report) {
	t.Helper()
	f, r, err := Train(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Validate(); err != nil {
		t.Fatal(err)
	}
	return f, r
}

func TestTrainLearnsFormula(t *testing.T) {
	o := quick()
	o.Epochs = 25
	f, r := train(t, synthetic(1200, 1), o)
	if r.MAPETest > 4 {
		t.Errorf("off by %.2f %% where the noise is 1 %%", r.MAPETest)
	}
	if f.Test.Rows != 240 || f.Rows != 960 || r.TestRows != 240 || f.Test.MAPE != r.MAPETest {
		t.Errorf("file %+v, report %+v", f.Test, r)
	}
	if q := f.Test.Quantiles; q.P50 < 0.97 || q.P50 > 1.03 || q.P99 > 1.5 {
		t.Errorf("quantiles %+v", q)
	}
	if f.Format != predictor.Format || f.Device != "formula" || f.Recipe != "overlapd" || f.Output != predictor.OutputRatio {
		t.Errorf("file %+v", f)
	}
}

func TestTrainIsDeterministic(t *testing.T) {
	d := synthetic(400, 1)
	o := quick()
	first, _ := train(t, d, o)
	again, _ := train(t, d, o)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same seed gives another predictor:\n%s", diff)
	}
	o.Seed = 2
	if other, _ := train(t, d, o); cmp.Equal(first.Layers, other.Layers) {
		t.Error("another seed gives the same network")
	}
}

// What is written is what was tested.
func TestReportedErrorIsThatOfTheFile(t *testing.T) {
	d := synthetic(400, 3)
	o := quick()
	f, r := train(t, d, o)
	path := filepath.Join(t.TempDir(), "x.predictor.json")
	if err := f.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := predictor.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, p := range r.tested[nameNetwork] {
		micros, err := f.Predict([]models.Group{d.Rows[p.row].Group})
		if err != nil {
			t.Fatal(err)
		}
		sum += math.Abs(micros[0]/d.Rows[p.row].Median - 1)
	}
	if got := 100 * sum / float64(r.TestRows); math.Abs(got-r.MAPETest) > 1e-6 {
		t.Errorf("the file errs %v %%, the report says %v %%", got, r.MAPETest)
	}
}

func TestRecipePaper(t *testing.T) {
	o := quick()
	o.Recipe = RecipePaper
	o.Epochs = 40
	f, r := train(t, synthetic(600, 1), o)
	if f.Features.Set != predictor.FeaturesPaper || f.Output != predictor.OutputMicros || r.Inputs != 4+4*3 {
		t.Errorf("features %+v, output %s", f.Features, f.Output)
	}
	if r.MAPETest > 100 || r.MAPETest < 1 {
		t.Errorf("off by %.1f %%", r.MAPETest)
	}
}

func TestFoldsTestEveryRow(t *testing.T) {
	o := quick()
	o.Split, o.Folds = SplitFolds, 3
	var stages []string
	o.Progress = func(p Progress) {
		if p.Epoch == p.Epochs && !strings.HasSuffix(p.Stage, "draft") && !strings.Contains(p.Stage, "trial") {
			stages = append(stages, p.Stage)
		}
	}
	f, r := train(t, synthetic(300, 1), o)
	if f.Rows != 300 || f.Test.Rows != 300 || len(r.Folds) != 3 {
		t.Errorf("file of %d rows, tested on %d; folds %v", f.Rows, f.Test.Rows, r.Folds)
	}
	want := []string{"network, fold 1 of 3", "network, fold 2 of 3", "network, fold 3 of 3", "network, all rows"}
	if diff := cmp.Diff(want, stages); diff != "" {
		t.Error(diff)
	}
}

func TestCompare(t *testing.T) {
	o := quick()
	o.Compare, o.Pairs = true, true
	_, r := train(t, synthetic(900, 1), o)
	var names []string
	for _, e := range r.Techniques {
		names = append(names, e.Name)
		if e.PerSet == nil || e.Fitted < 3 || e.Test <= 0 || e.Train <= 0 {
			t.Errorf("%+v", e)
		}
	}
	if diff := cmp.Diff([]string{nameNetwork, nameCosts, nameLinear, nameVectors}, names); diff != "" {
		t.Error(diff)
	}
	rows := 0
	for _, s := range r.Spans {
		rows += s.Rows
	}
	if len(r.Spans) != 3 || rows != r.TestRows {
		t.Errorf("by spans: %+v", r.Spans)
	}
	if r.Techniques[1].Test > r.Techniques[2].Test {
		t.Errorf("costs err more than a line: %+v", r.Techniques)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// Solo times that were measured stand in for groups that are missing.
func TestMeasuredOperatorsHelp(t *testing.T) {
	d := synthetic(120, 1)
	o := quick()
	_, without := train(t, d, o)
	o.Operators = map[string][]training.OperatorTimes{}
	for i, m := range d.Models {
		for size := 1; size <= 8; size *= 2 {
			times := training.OperatorTimes{Size: size, SeqLen: 32 * (i % 2 * (3 - i) / 2)}
			for op := range m.Operators {
				g := models.Group{Spans: []models.Span{{Service: models.ServiceID(i), Start: op, End: op + 1, Size: size, SeqLen: times.SeqLen}}}
				times.Micros = append(times.Micros, formula(g))
			}
			o.Operators[m.Name] = append(o.Operators[m.Name], times)
		}
	}
	if _, with := train(t, d, o); with.MAPETest >= without.MAPETest {
		t.Errorf("off by %.2f %% with solo times, %.2f %% without", with.MAPETest, without.MAPETest)
	}
}

func TestTrainRefuses(t *testing.T) {
	alone := synthetic(400, 1)
	for i := range alone.Rows {
		alone.Rows[i].Group.Spans = alone.Rows[i].Group.Spans[:1]
	}
	noTime := synthetic(400, 1)
	noTime.Rows[7].Median = math.NaN()
	for name, c := range map[string]struct {
		d    *training.Dataset
		want error
	}{
		"empty":      {&training.Dataset{}, errRows},
		"few":        {synthetic(50, 1), errRows},
		"no overlap": {alone, errRows},
		"NaN":        {noTime, training.ErrFormat},
	} {
		if _, _, err := Train(t.Context(), c.d, quick()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTrainStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := quick()
	o.Epochs = maxEpochs
	o.Progress = func(Progress) { cancel() }
	if _, _, err := Train(ctx, synthetic(300, 1), o); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
}

func TestOptionsRefuse(t *testing.T) {
	for name, spoil := range map[string]func(*Options){
		"recipe":    func(o *Options) { o.Recipe = "x" },
		"split":     func(o *Options) { o.Split = "x" },
		"no layer":  func(o *Options) { o.Hidden = nil },
		"layers":    func(o *Options) { o.Hidden = make([]int, maxHidden+1) },
		"units":     func(o *Options) { o.Hidden = []int{0} },
		"wide":      func(o *Options) { o.Hidden = []int{maxUnits + 1} },
		"epochs":    func(o *Options) { o.Epochs = -1 },
		"test":      func(o *Options) { o.TestFraction = 1 },
		"test NaN":  func(o *Options) { o.TestFraction = math.NaN() },
		"folds":     func(o *Options) { o.Split, o.Folds = SplitFolds, 1 },
		"many fold": func(o *Options) { o.Split, o.Folds = SplitFolds, maxFolds+1 },
	} {
		o := DefaultOptions()
		spoil(&o)
		if err := o.Validate(); !errors.Is(err, errOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o := DefaultOptions(); o.Validate() != nil {
		t.Error(o.Validate())
	}
}
