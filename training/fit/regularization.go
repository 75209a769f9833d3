package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Constants of the regularization for few rows.
const (
	// fewRows is the number of rows to fit with up to which they count as few.
	fewRows   = 4000
	fewDecay  = 1.0
	fewEpochs = 60
	// keptSteps is the number of fractions of the network's correction that are tried, without 0.
	keptSteps = 4
	// keptErrors is by how many standard errors a correction must improve on none.
	keptErrors = 2.0
)

// regularization keeps a fit from treating the noise of a few rows as signal. For few rows it
// is chosen by cross-validation on the rows to fit with: these are divided into folds, and each
// fold is predicted by a fit to the others. Held-out test rows take no part in it.
type regularization struct {
	// Costs names the priors on costs, and Decay is the weight decay.
	Costs string  `json:"costs"`
	Decay float64 `json:"decay"`

	// Kept is the fraction of the network's correction that is applied. With 0, only costs count.
	Kept float64 `json:"kept"`

	// Folds is the number of folds, or 0 for many rows. CostsError is the mean absolute percentage
	// error over the folds for costs alone, and Error the same with the network.
	Folds      int     `json:"folds"`
	CostsError float64 `json:"costs_error,omitempty"`
	Error      float64 `json:"error,omitempty"`

	priors costPriors
}

// few reports whether that many rows to fit with count as few.
func few(o *Options, rows int) bool { return rows <= fewRows && !o.allMany }

// regularize chooses the regularization for a fit to rows.
func regularize(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, stage string) (*regularization, error) {
	t, r, err := regularizeCosts(ctx, d, rows, o, stage)
	if err != nil || t == nil {
		return r, err
	}
	corrected, err := t.corrected(ctx, o, stage)
	if err != nil {
		return nil, err
	}
	r.Kept, r.Error = t.keep(corrected)
	return r, nil
}

// regularizeCosts chooses the priors on costs. It returns the trial of the chosen ones, or nil
// for many rows.
func regularizeCosts(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, stage string) (*trial, *regularization, error) {
	r := &regularization{Decay: newSchedule(o, len(rows)).decay, Kept: 1, priors: costPriorSets[0], Costs: costPriorSets[0].name}
	if !few(o, len(rows)) {
		return nil, r, nil
	}
	r.Folds, r.CostsError = trialFolds, math.Inf(1)
	var best *trial
	for _, priors := range costPriorSets {
		o.report(Progress{Stage: stage + ", trial of costs"})
		t, err := tryCosts(ctx, d, rows, o, priors)
		if err != nil {
			return nil, nil, err
		}
		// A comparison with NaN is false, so diverged costs are never chosen.
		if off := mape(newPoints(t.rows, t.bases)); off < r.CostsError {
			best, r.priors, r.Costs, r.CostsError = t, priors, priors.name, off
		}
	}
	if best == nil {
		return nil, nil, fmt.Errorf("%w: costs are no numbers", errDiverged)
	}
	return best, r, nil
}

// shrink scales a network's output by a fraction.
func shrink(layers []predictor.Layer, part float64) {
	// The last layer is linear, so scaling it scales the output.
	last := &layers[len(layers)-1]
	for _, values := range [][]float32{last.Weights, last.Bias} {
		for i := range values {
			values[i] *= float32(part)
		}
	}
}

// text describes the regularization in words.
func (r *regularization) text() string {
	text := fmt.Sprintf("costs held %s, weights decay by %v", r.Costs, r.Decay)
	if r.Folds == 0 {
		return text
	}
	return fmt.Sprintf("%s, %.0f %% of the correction kept: by %d folds of the rows to fit with, on which costs alone err %.2f %%, with the network %.2f %%",
		text, 100*r.Kept, r.Folds, r.CostsError, r.Error)
}

// costPriors holds the weights of the priors on costs, which are quadratic penalties on
// logarithms. The unit is rows: a weight of 1 counts as much as a row with an error of 100 %.
type costPriors struct {
	name string

	// smooth ties the deviations of neighbouring operators, and cells those of one operator in
	// neighbouring cells. deviation ties operators to their measured times, or to the common prior.
	smooth    float64
	cells     float64
	deviation float64

	// share ties the share of work of an operator to that of its cell. levels ties the costs of
	// neighbouring cells. levelShare ties work to the isolated latency.
	share      float64
	levels     float64
	levelShare float64
}

// costPriorSets are the candidates of cross-validation for few rows, the weakest first. Many
// rows use the weakest. Which one suits few rows best depends on their noise, and on whether
// operators were measured one by one.
var costPriorSets = []costPriors{
	{"loose", 0.15, 0.1, 0, 0.001, 0.1, 0.001},
	{"light", 0.5, 0.3, 0, 0.003, 0.3, 0.003},
	{"firm", 0.5, 0.3, 1, 0.03, 3, 0.01},
	{"rigid", 0.5, 1, 10, 0.3, 30, 0.03},
}

// addPriors adds the gradient of the priors.
//
//go:norace
func (f *costFit) addPriors(byDeviation, byShare, byLevel, byLevelShare []float64) {
	for i := range f.deviation {
		byDeviation[i] += 2 * f.priors.deviation * f.deviation[i]
		byShare[i] += 2 * f.priors.share * f.share[i]
	}
	for cell := range f.levelShare {
		byLevelShare[cell] += 2 * f.priors.levelShare * f.levelShare[cell]
	}
	for i := range f.grids {
		g := &f.grids[i]
		for cell := range g.cells() {
			at := g.first + cell*g.operators
			for o := at + 1; o < at+g.operators; o++ {
				tie(f.deviation, byDeviation, o, o-1, f.priors.smooth)
				tie(f.share, byShare, o, o-1, f.priors.smooth)
			}
			// One step back leads to the next smaller batch, or to the next shorter sequence.
			for axis, back := range [2]int{1, len(g.sizes)} {
				if cell < back || axis == 0 && cell%len(g.sizes) == 0 {
					continue
				}
				tie(f.level, byLevel, g.firstCell+cell, g.firstCell+cell-back, f.priors.levels)
				tie(f.levelShare, byLevelShare, g.firstCell+cell, g.firstCell+cell-back, f.priors.levels)
				for o := range g.operators {
					tie(f.deviation, byDeviation, at+o, at-back*g.operators+o, f.priors.cells)
					tie(f.share, byShare, at+o, at-back*g.operators+o, f.priors.cells)
				}
			}
		}
	}
}

// tie adds the gradient of the squared difference of two values.
func tie(values, slope []float64, a, b int, prior float64) {
	d := 2 * prior * (values[a] - values[b])
	slope[a] += d
	slope[b] -= d
}

// trialFolds is the number of folds of the cross-validation.
const trialFolds = 4

// trial holds predictions of the rows to fit with, each made by a fit without the row's fold.
// bases are the predictions by row, from the costs in the files of the folds. The files have no
// layers yet.
type trial struct {
	rows  []training.Row
	folds []fold
	files []*predictor.File
	bases []float64
}

// tryCosts fits costs with the given priors to each fold, and predicts the rest.
func tryCosts(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, priors costPriors) (*trial, error) {
	random := rand.New(rand.NewPCG(o.Seed, 4))
	t := &trial{rows: rows, folds: splitFolds(random.Perm(len(rows)), trialFolds), bases: make([]float64, len(rows))}
	for _, part := range t.folds {
		// The features cover all rows, including models and sizes that only the rest has.
		f := newFile(d, rows, o)
		if err := fitCosts(ctx, f, d, at(rows, part.train), o, priors, random); err != nil {
			return nil, err
		}
		for i, base := range encodeFeatures(&f.Features, at(rows, part.test)).bases {
			t.bases[part.test[i]] = base
		}
		t.files = append(t.files, f)
	}
	return t, nil
}

// corrected returns the predictions with the networks' corrections.
func (t *trial) corrected(ctx context.Context, o *Options, stage string) ([]float64, error) {
	random := rand.New(rand.NewPCG(o.Seed, 5))
	all := make([]float64, len(t.rows))
	for k, part := range t.folds {
		train := at(t.rows, part.train)
		name := fmt.Sprintf("%s, trial %d of %d", stage, k+1, len(t.folds))
		if err := fitLayers(ctx, t.files[k], train, o, newSchedule(o, len(train)), random, name); err != nil {
			return nil, err
		}
		micros, err := predictWith(t.files[k], at(t.rows, part.test))
		if err != nil {
			return nil, err
		}
		for i, v := range micros {
			all[part.test[i]] = v
		}
	}
	return all, nil
}

// keep returns the fraction of the correction with the least error, and that error. A gain that
// may be chance does not count.
func (t *trial) keep(corrected []float64) (part, off float64) {
	none := newPoints(t.rows, t.bases)
	off = mape(none)
	for step := 1; step <= keptSteps; step++ {
		p := float64(step) / keptSteps
		micros := make([]float64, len(corrected))
		for i, v := range corrected {
			micros[i] = t.bases[i] * math.Pow(v/t.bases[i], p)
		}
		some := newPoints(t.rows, micros)
		if e := mape(some); e < off && gain(none, some) > keptErrors {
			part, off = p, e
		}
	}
	return part, off
}

// gain returns by how many standard errors some predictions are better than others of the same
// rows.
func gain(than, some []point) float64 {
	var sum, squares float64
	n := float64(len(some))
	for i := range some {
		d := than[i].off() - some[i].off()
		sum += d
		squares += d * d
	}
	mean := sum / n
	return mean / math.Sqrt(max(squares/n-mean*mean, math.SmallestNonzeroFloat64)/n)
}
