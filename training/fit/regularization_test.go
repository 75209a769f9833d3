package fit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// spread makes each row take longer or shorter by chance, and some far longer.
func spread(d *training.Dataset, part float64) *training.Dataset {
	random := rand.New(rand.NewPCG(3, 3))
	for i := range d.Rows {
		d.Rows[i].Median *= math.Exp(part * random.NormFloat64())
		if i%20 == 0 {
			d.Rows[i].Median *= 1 + 5*part
		}
	}
	return d
}

func regularized(t *testing.T, d *training.Dataset, o Options) (*predictor.File, *regularization) {
	t.Helper()
	f, r, err := fitNetwork(t.Context(), d, d.Rows, &o, "x")
	if err != nil {
		t.Fatal(err)
	}
	return f, r
}

// Where only chance is left to learn, nothing is learned of it: what is
// predicted is no farther from the formula than costs alone are.
func TestFewNoisyRowsTeachNoChance(t *testing.T) {
	d := spread(synthetic(120, 1), 0.1)
	o := quick()
	o.Epochs, o.allMany = 8, false
	f, r := regularized(t, d, o)
	if r.Folds != trialFolds || r.Kept > 0.5 || r.Error > r.CostsError {
		t.Errorf("regularization %+v", r)
	}
	network, err := predictWith(f, d.Rows)
	if err != nil {
		t.Fatal(err)
	}
	costs, err := fitCostsAlone(t.Context(), d, d.Rows, &o, "x")
	if err != nil {
		t.Fatal(err)
	}
	alone, err := costs(d.Rows)
	if err != nil {
		t.Fatal(err)
	}
	if n, c := fromFormula(d, network), fromFormula(d, alone); n > 1.05*c {
		t.Errorf("%.2f %% from the formula, costs alone %.2f %%", n, c)
	}
}

func fromFormula(d *training.Dataset, micros []float64) float64 {
	all := make([]point, len(micros))
	for i, v := range micros {
		all[i] = point{measured: formula(d.Rows[i].Group), predicted: v}
	}
	return mape(all)
}

// What rows kept aside say changes neither network nor regularization.
func TestRowsKeptAsideHaveNoPart(t *testing.T) {
	o := quick()
	o.allMany = false
	d := synthetic(100, 1)
	first, r := train(t, d, o)
	for _, i := range folds(t, d.Rows, o)[0].test {
		d.Rows[i].Median *= 7
	}
	again, other := train(t, d, o)
	first.Test, again.Test = predictor.Errors{}, predictor.Errors{}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("another predictor:\n%s", diff)
	}
	if diff := cmp.Diff(r.Regularization, other.Regularization, cmp.AllowUnexported(regularization{}, costPriors{})); diff != "" {
		t.Errorf("another regularization:\n%s", diff)
	}
	if other.MAPETest < 2*r.MAPETest {
		t.Errorf("off by %.2f %%, and by %.2f %% where rows kept aside take longer", r.MAPETest, other.MAPETest)
	}
}

func TestManyRowsAreNotTried(t *testing.T) {
	o := DefaultOptions()
	rows := make([]training.Row, fewRows+1)
	r, err := regularize(t.Context(), synthetic(1, 1), rows, &o, "x")
	if err != nil || r.Folds != 0 || r.Kept != 1 || r.Decay != oursDecay || r.priors != costPriorSets[0] {
		t.Errorf("%+v, %v", r, err)
	}
	if s := newSchedule(&o, fewRows); s.decay <= oursDecay || s.epochs != fewEpochs {
		t.Errorf("few rows: decay %v, %d epochs", s.decay, s.epochs)
	}
}

// A correction is kept as far as it leads to what was measured.
func TestKeepAsMuchAsGains(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	made := &trial{rows: make([]training.Row, 400), bases: make([]float64, 400)}
	exact, twice, chance := make([]float64, 400), make([]float64, 400), make([]float64, 400)
	for i := range made.rows {
		off := 0.2 * random.NormFloat64()
		made.bases[i] = 1000
		exact[i] = 1000 * math.Exp(off)
		twice[i] = 1000 * math.Exp(2*off)
		chance[i] = 1000 * math.Exp(0.2*random.NormFloat64())
		made.rows[i].Median = exact[i] * math.Exp(0.05*random.NormFloat64())
	}
	for name, c := range map[string]struct {
		corrected []float64
		want      float64
	}{"exact": {exact, 1}, "twice as far": {twice, 0.5}, "by chance": {chance, 0}, "none": {made.bases, 0}} {
		part, off := made.keep(c.corrected)
		if part != c.want || off > mape(newPoints(made.rows, made.bases)) {
			t.Errorf("%s: %v is kept, off by %.2f %%", name, part, off)
		}
	}
}

// Nothing kept of a network is costs alone.
func TestShrinkToCosts(t *testing.T) {
	d := synthetic(100, 1)
	o := quick()
	f, err := fitOurs(t.Context(), d, d.Rows, &o, &regularization{Kept: 0, priors: costPriorSets[0]}, "x")
	if err != nil {
		t.Fatal(err)
	}
	costs := newFile(d, d.Rows, &o)
	if err := fitCosts(t.Context(), costs, d, d.Rows, &o, costPriorSets[0], nil); err != nil {
		t.Fatal(err)
	}
	in := encodeFeatures(&costs.Features, d.Rows)
	got, err := predictWith(f, d.Rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range in.bases {
		if math.Abs(got[i]/want-1) > 1e-6 {
			t.Fatalf("row %d: %v, by costs alone %v", i, got[i], want)
		}
	}
}
