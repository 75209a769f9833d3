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

// Train fits a predictor to a dataset and tests it on rows kept aside. The
// same dataset and options give the same file but for Created, which the
// caller sets, and Device if the dataset does not name it. It ends early with
// the context's error.
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

// begin divides the rows of a dataset, unless nothing can be learned from it or the
// options are unusable.
func begin(d *training.Dataset, o *Options) ([]fold, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := check(d); err != nil {
		return nil, err
	}
	return split(d.Rows, o, rand.New(rand.NewPCG(o.Seed, 0)))
}

// check refuses a dataset that nothing can be learned from.
func check(d *training.Dataset) error {
	if err := d.Check(); err != nil {
		return err
	}
	if !slices.ContainsFunc(d.Rows, func(r training.Row) bool { return len(r.Group.Spans) > 1 }) {
		return fmt.Errorf("%w: none of %d rows holds spans of several models; where nothing overlaps, solo times say all", errRows, len(d.Rows))
	}
	f := features(d, d.Rows, RecipePaper)
	if err := f.Validate(); err != nil {
		return fmt.Errorf("%w that a predictor can take: %w", errRows, err)
	}
	return nil
}

// trainNetwork tests on all folds. The file is that of the only fold, or
// fitted to all rows.
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

// compare tries the other techniques, and predictors of single sets of
// models.
func (r *Report) compare(ctx context.Context, d *training.Dataset, o *Options, folds []fold, network *outcome) error {
	tried := []technique{networks(d, o, func(*predictor.File, *regularization) {})}
	if o.Compare {
		tried = append(tried, others(d, o)...)
	}
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

// fold is the positions of rows to fit with and to test with.
type fold struct {
	train, test []int
}

// split divides rows by Options.Split: into one fold, or several.
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
		// The order of the rows in the dataset, so that only the choice and
		// not the order is random.
		slices.Sort(f.train)
		slices.Sort(f.test)
	}
	return folds, nil
}

func splitFolds(order []int, n int) []fold {
	folds := make([]fold, n)
	for i := range folds {
		from, to := i*len(order)/n, (i+1)*len(order)/n
		folds[i].test = slices.Clone(order[from:to])
		folds[i].train = slices.Concat(order[:from], order[to:])
	}
	return folds
}

// splitGrouped takes configurations in random order until enough of them are
// kept aside.
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

// configuration names the models of a group with their batch sizes and
// sequence lengths.
func configuration(r training.Row) (key string) {
	for _, s := range r.Group.Spans {
		key += fmt.Sprintln(s.Service, s.Size, s.SeqLen)
	}
	return key
}

// modelSet names the models of a group.
func modelSet(r training.Row) (key string) {
	for _, s := range r.Group.Spans {
		key += fmt.Sprintln(s.Service)
	}
	return key
}

// at returns the rows at the positions.
func at(rows []training.Row, positions []int) []training.Row {
	picked := make([]training.Row, len(positions))
	for i, p := range positions {
		picked[i] = rows[p]
	}
	return picked
}

// The fewest rows that make a fit, and a test of it, worth anything.
const (
	minTrainRows = 64
	minTestRows  = 16
)
