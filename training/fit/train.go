package fit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Train fits a predictor to a dataset and tests it on held-out rows. Equal arguments give equal
// files, except for Created, which the caller sets, and Device if the dataset does not name it.
// When ctx ends, Train returns its error.
func Train(ctx context.Context, d *training.Dataset, o Options) (*predictor.File, *Report, error) {
	folds, err := begin(d, &o)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	file, chosen, out, err := trainNetwork(ctx, d, &o, folds)
	if err != nil {
		return nil, nil, err
	}
	r := newReport(d, &o, folds, file, out)
	r.Regularization = chosen
	r.Seconds = time.Since(began).Seconds()
	if err := r.compare(ctx, d, &o, folds, out); err != nil {
		return nil, nil, err
	}
	return file, r, nil
}

// begin validates the options and the dataset, and splits the rows.
func begin(d *training.Dataset, o *Options) ([]fold, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := check(d); err != nil {
		return nil, err
	}
	return split(d.Rows, o, rand.New(rand.NewPCG(o.Seed, 0)))
}

// check returns an error if a predictor cannot be fitted to the dataset.
func check(d *training.Dataset) error {
	if err := d.Check(); err != nil {
		return err
	}
	if !slices.ContainsFunc(d.Rows, func(r training.Row) bool { return len(r.Group.Spans) > 1 }) {
		return fmt.Errorf("%w: none of %d rows holds spans of several models; where nothing overlaps, isolated latencies say all", errRows, len(d.Rows))
	}
	// Only the limits on models, spans and sizes matter here, so the simpler features will do.
	f := features(d, d.Rows, RecipePaper)
	if err := f.Validate(); err != nil {
		return fmt.Errorf("%w that a predictor can take: %w", errRows, err)
	}
	return nil
}

// trainNetwork fits and tests a network on all folds. The returned file is that of the only
// fold. With several folds, it is fitted to all rows afterwards.
func trainNetwork(ctx context.Context, d *training.Dataset, o *Options, folds []fold) (*predictor.File, *regularization, *outcome, error) {
	var file *predictor.File
	var chosen *regularization
	t := networks(d, o, func(f *predictor.File, r *regularization) { file, chosen = f, r })
	out, err := try(ctx, t, d.Rows, folds, func(i int) string {
		if len(folds) == 1 {
			return t.name
		}
		return fmt.Sprintf("%s, fold %d of %d", t.name, i+1, len(folds))
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if len(folds) > 1 {
		if _, err := t.fit(ctx, d.Rows, t.name+", all rows"); err != nil {
			return nil, nil, nil, err
		}
	}
	file.Test = errorsOf(out.test)
	return file, chosen, out, nil
}

// compare adds the errors of the network, of the other techniques if o.Compare is set, and of
// separate predictors for each set of models if o.Pairs is set.
func (r *Report) compare(ctx context.Context, d *training.Dataset, o *Options, folds []fold, network *outcome) error {
	tried := []technique{networks(d, o, func(*predictor.File, *regularization) {})}
	if o.Compare {
		tried = append(tried, others(d, o)...)
	}
	// The same folds are used for every technique, so that errors are comparable.
	parts := bySet(d.Rows, folds)
	for i, t := range tried {
		var sets *outcome
		var err error
		out := network
		if i > 0 {
			o.report(Progress{Stage: t.name})
			out, err = try(ctx, t, d.Rows, folds, func(int) string { return t.name })
		}
		if err == nil && o.Pairs {
			sets, err = try(ctx, t, d.Rows, parts, func(i int) string { return fmt.Sprintf("%s, set %d of %d", t.name, i+1, len(parts)) })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		r.add(t.name, d, out, sets)
	}
	return nil
}

// fold holds the indices of the rows to fit with and of those to test with.
type fold struct {
	train, test []int
}

// split divides rows according to Options.Split.
func split(rows []training.Row, o *Options, random *rand.Rand) ([]fold, error) {
	var folds []fold
	switch o.Split {
	case SplitFolds:
		folds = splitFolds(random.Perm(len(rows)), o.Folds)
	case SplitGrouped:
		folds = []fold{splitGrouped(rows, o.TestFraction, random)}
	default:
		order := random.Perm(len(rows))
		test := int(float64(len(rows)) * o.TestFraction)
		folds = []fold{{train: order[test:], test: order[:test]}}
	}
	for _, f := range folds {
		if len(f.train) < minTrainRows || len(f.test) < minTestRows {
			return nil, fmt.Errorf("%w: %d to fit with and %d to test with; at least %d and %d are needed: measure more groups",
				errRows, len(f.train), len(f.test), minTrainRows, minTestRows)
		}
		// Restore the order of the dataset, so that a fit depends on which rows were chosen but not
		// on the order of the permutation.
		slices.Sort(f.train)
		slices.Sort(f.test)
	}
	return folds, nil
}

// splitFolds divides a permutation of rows into n folds of about equal size.
func splitFolds(order []int, n int) []fold {
	folds := make([]fold, n)
	for i := range folds {
		from, to := i*len(order)/n, (i+1)*len(order)/n
		folds[i].test = slices.Clone(order[from:to])
		folds[i].train = slices.Concat(order[:from], order[to:])
	}
	return folds
}

// splitGrouped holds out a fraction of the configurations, chosen at random, with all their rows.
func splitGrouped(rows []training.Row, fraction float64, random *rand.Rand) fold {
	var keys []string
	members := map[string][]int{}
	for i := range rows {
		key := configuration(rows[i])
		if members[key] == nil {
			keys = append(keys, key)
		}
		members[key] = append(members[key], i)
	}
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	var f fold
	test := int(float64(len(keys)) * fraction)
	for _, key := range keys[:test] {
		f.test = append(f.test, members[key]...)
	}
	for _, key := range keys[test:] {
		f.train = append(f.train, members[key]...)
	}
	return f
}

// configuration identifies the models of a group with their batch sizes and sequence lengths.
func configuration(r training.Row) (key string) {
	for _, s := range r.Group.Spans {
		key += fmt.Sprintln(s.Service, s.Size, s.SeqLen)
	}
	return key
}

// modelSet identifies the models of a group.
func modelSet(r training.Row) (key string) {
	for _, s := range r.Group.Spans {
		key += fmt.Sprintln(s.Service)
	}
	return key
}

// at returns the rows at the given indices.
func at(rows []training.Row, positions []int) []training.Row {
	picked := make([]training.Row, len(positions))
	for i, p := range positions {
		picked[i] = rows[p]
	}
	return picked
}

// The least number of rows for a meaningful fit, and for a meaningful test.
const (
	minTrainRows = 64
	minTestRows  = 16
)
