package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

const trialFolds = 4

// trial is what was predicted of the rows to fit with, each by a fold that it
// is not in.
type trial struct {
	rows  []training.Row
	folds []fold
	files []*predictor.File // by fold, without layers
	bases []float64         // by row
}

func tryCosts(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, hold firmness) (*trial, error) {
	random := rand.New(rand.NewPCG(o.Seed, 4))
	t := &trial{rows: rows, folds: splitFolds(random.Perm(len(rows)), trialFolds), bases: make([]float64, len(rows))}
	for _, part := range t.folds {
		// Models and sizes that only the rest has are in the features too.
		f := newFile(d, rows, o)
		if err := fitCosts(ctx, f, d, at(rows, part.train), o, hold, random); err != nil {
			return nil, err
		}
		e, err := predictor.NewEncoder(&f.Features)
		if err != nil {
			return nil, err
		}
		for i, base := range encode(e, at(rows, part.test)).bases {
			t.bases[part.test[i]] = base
		}
		t.files = append(t.files, f)
	}
	return t, nil
}

// corrected returns what networks make of the bases.
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

// keep returns the part of the correction that errs least, and its error. A
// part that gains no more than chance gives is not worth any.
func (t *trial) keep(corrected []float64) (part, off float64) {
	none := t.points(t.bases)
	off = mape(none)
	for step := 1; step <= keptSteps; step++ {
		p := float64(step) / keptSteps
		micros := make([]float64, len(corrected))
		for i, v := range corrected {
			micros[i] = t.bases[i] * math.Pow(v/t.bases[i], p)
		}
		some := t.points(micros)
		if e := mape(some); e < off && gain(none, some) > keptErrors {
			part, off = p, e
		}
	}
	return part, off
}

// gain returns by how many standard errors some predictions are better than
// others of the same rows.
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

func (t *trial) points(micros []float64) []point {
	all := make([]point, len(micros))
	for i, v := range micros {
		all[i] = point{row: i, measured: t.rows[i].Median, predicted: v}
	}
	return all
}
