package fit

import (
	"context"
	"math/rand/v2"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// predict returns the predictions of what was fitted, in microseconds.
type predict func(rows []training.Row) ([]float64, error)

// technique is a way to fit a predictor to rows.
type technique struct {
	name string
	fit  func(ctx context.Context, rows []training.Row, stage string) (predict, error)
}

// Names of the techniques.
const (
	nameNetwork = "network"
	nameCosts   = "costs alone"
	nameLinear  = "linear regression"
	nameVectors = "support vector regression"
)

// networks fits networks, and hands each file to keep.
func networks(d *training.Dataset, o *Options, keep func(*predictor.File, *regularization)) technique {
	return technique{nameNetwork, func(ctx context.Context, rows []training.Row, stage string) (predict, error) {
		f, r, err := fitRegularized(ctx, d, rows, o, stage)
		if err != nil {
			return nil, err
		}
		keep(f, r)
		return func(rows []training.Row) ([]float64, error) { return predictWith(f, rows) }, nil
	}}
}

// others are the techniques that networks are compared with.
func others(d *training.Dataset, o *Options) []technique {
	return []technique{
		{nameCosts, func(ctx context.Context, rows []training.Row, stage string) (predict, error) {
			return fitCostsAlone(ctx, d, rows, o, stage)
		}},
		{nameLinear, func(_ context.Context, rows []training.Row, _ string) (predict, error) {
			return fitPlane(d, rows, fitLinear)
		}},
		{nameVectors, func(_ context.Context, rows []training.Row, _ string) (predict, error) {
			return fitPlane(d, rows, func(in *inputs) (*hyperplane, error) {
				return fitVectors(in, rand.New(rand.NewPCG(o.Seed, 2))), nil
			})
		}},
	}
}

// fitCostsAlone predicts by the costs of operators, without a network.
func fitCostsAlone(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, stage string) (predict, error) {
	ours := *o
	ours.Recipe = RecipeOurs
	_, r, err := regularizeCosts(ctx, d, rows, &ours, stage)
	if err != nil {
		return nil, err
	}
	f := newFile(d, rows, &ours)
	if err := fitCosts(ctx, f, d, rows, &ours, r.priors, rand.New(rand.NewPCG(o.Seed, 1))); err != nil {
		return nil, err
	}
	return func(rows []training.Row) ([]float64, error) {
		in, err := encodeFeatures(&f.Features, rows)
		if err != nil {
			return nil, err
		}
		return in.bases, nil
	}, nil
}

// fitPlane fits a plane to the inputs of the paper, section 5.3.
func fitPlane(d *training.Dataset, rows []training.Row, with func(*inputs) (*hyperplane, error)) (predict, error) {
	f := features(d, rows, RecipePaper)
	for i := range d.Rows {
		f.Spans = max(f.Spans, len(d.Rows[i].Group.Spans))
	}
	in, err := encodeFeatures(&f, rows)
	if err != nil {
		return nil, err
	}
	scaled := newScaling(in)
	scaled.apply(in)
	plane, err := with(in)
	if err != nil {
		return nil, err
	}
	return func(rows []training.Row) ([]float64, error) {
		in, err := encodeFeatures(&f, rows)
		if err != nil {
			return nil, err
		}
		scaled.apply(in)
		micros := make([]float64, len(rows))
		for i := range micros {
			micros[i] = plane.micros(in.row(i))
		}
		return micros, nil
	}, nil
}

// outcome is what a technique did on all folds.
type outcome struct {
	train  []point
	test   []point
	folds  []float64 // error of each, on the rows kept aside
	fitted int       // predictors
}

// try fits a technique to each fold and tests it.
func try(ctx context.Context, t technique, rows []training.Row, folds []fold, stage func(fold int) string) (*outcome, error) {
	var out outcome
	for i, f := range folds {
		if err := out.add(ctx, t, rows, f, stage(i)); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

func (out *outcome) add(ctx context.Context, t technique, rows []training.Row, f fold, stage string) error {
	fitted, err := t.fit(ctx, at(rows, f.train), stage)
	if err != nil {
		return err
	}
	train, err := points(fitted, rows, f.train)
	if err != nil {
		return err
	}
	test, err := points(fitted, rows, f.test)
	if err != nil {
		return err
	}
	out.train = append(out.train, train...)
	out.test = append(out.test, test...)
	out.folds = append(out.folds, mape(test))
	out.fitted++
	return nil
}

func points(p predict, rows []training.Row, positions []int) ([]point, error) {
	micros, err := p(at(rows, positions))
	if err != nil {
		return nil, err
	}
	all := newPoints(at(rows, positions), micros)
	for i, row := range positions {
		all[i].row = row
	}
	return all, nil
}

// minSetRows is how many rows a set of models needs for a predictor of its
// own.
const minSetRows = minTrainRows

// trySets fits a technique to each set of models by itself.
func trySets(ctx context.Context, t technique, rows []training.Row, folds []fold, stage func(set, sets int) string) (*outcome, error) {
	var out outcome
	for _, whole := range folds {
		parts := bySet(rows, whole)
		for i, part := range parts {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := out.add(ctx, t, rows, part, stage(i, len(parts))); err != nil {
				return nil, err
			}
		}
	}
	return &out, nil
}

// bySet divides a fold by the models of its rows. A set with too few rows is
// left out. Groups of a part of the models belong to sets of their own.
func bySet(rows []training.Row, whole fold) []fold {
	index := map[string]int{}
	var all []fold
	part := func(row int) *fold {
		key := modelSet(rows[row])
		if _, known := index[key]; !known {
			index[key] = len(all)
			all = append(all, fold{})
		}
		return &all[index[key]]
	}
	for _, row := range whole.train {
		p := part(row)
		p.train = append(p.train, row)
	}
	for _, row := range whole.test {
		p := part(row)
		p.test = append(p.test, row)
	}
	var enough []fold
	for _, f := range all {
		if len(f.train) >= minSetRows && len(f.test) > 0 {
			enough = append(enough, f)
		}
	}
	return enough
}
