package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// predict returns the predictions of a fitted technique, in microseconds.
type predict func(rows []training.Row) ([]float64, error)

// technique is a way to fit a predictor to rows.
type technique struct {
	name string
	fit  func(ctx context.Context, rows []training.Row, stage string) (predict, error)
}

// The names of the techniques.
const (
	nameNetwork = "network"
	nameCosts   = "costs alone"
	nameLinear  = "linear regression"
	nameVectors = "support vector regression"
)

// networks is the technique that fits networks. It passes each file to keep.
func networks(d *training.Dataset, o *Options, keep func(*predictor.File, *regularization)) technique {
	return technique{nameNetwork, func(ctx context.Context, rows []training.Row, stage string) (predict, error) {
		f, r, err := fitNetwork(ctx, d, rows, o, stage)
		if err != nil {
			return nil, err
		}
		keep(f, r)
		return func(rows []training.Row) ([]float64, error) { return predictWith(f, rows) }, nil
	}}
}

// others returns the techniques with which networks are compared.
func others(d *training.Dataset, o *Options) []technique {
	return []technique{
		{nameCosts, func(ctx context.Context, rows []training.Row, stage string) (predict, error) {
			return fitCostsAlone(ctx, d, rows, o, stage)
		}},
		{nameLinear, func(_ context.Context, rows []training.Row, _ string) (predict, error) {
			return fitPlane(d, rows, fitLinear), nil
		}},
		{nameVectors, func(_ context.Context, rows []training.Row, _ string) (predict, error) {
			return fitPlane(d, rows, func(in *inputs) hyperplane { return fitVectors(in, rand.New(rand.NewPCG(o.Seed, 2))) }), nil
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
	return func(rows []training.Row) ([]float64, error) { return encodeFeatures(&f.Features, rows).bases, nil }, nil
}

// fitPlane fits a plane to the inputs of section 5.3 of the paper.
func fitPlane(d *training.Dataset, rows []training.Row, with func(*inputs) hyperplane) predict {
	f := features(d, rows, RecipePaper)
	// Held-out rows may have more spans than rows, and must fit into the inputs.
	for i := range d.Rows {
		f.Spans = max(f.Spans, len(d.Rows[i].Group.Spans))
	}
	in := encodeFeatures(&f, rows)
	scaled := newScaling(in)
	scaled.apply(in)
	plane := with(in)
	return func(rows []training.Row) ([]float64, error) {
		in := encodeFeatures(&f, rows)
		scaled.apply(in)
		micros := make([]float64, len(rows))
		for i := range micros {
			micros[i] = plane.micros(in.row(i))
		}
		return micros, nil
	}
}

// outcome holds the results of a technique on all folds: the points of both kinds of rows, the
// error of each fold on its held-out rows, and the number of predictors fitted.
type outcome struct {
	train  []point
	test   []point
	folds  []float64
	fitted int
}

// try fits a technique to each fold and tests it.
func try(ctx context.Context, t technique, rows []training.Row, folds []fold, stage func(fold int) string) (*outcome, error) {
	out := &outcome{fitted: len(folds)}
	for i, f := range folds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fitted, err := t.fit(ctx, at(rows, f.train), stage(i))
		if err != nil {
			return nil, err
		}
		train, err := points(fitted, rows, f.train)
		if err != nil {
			return nil, err
		}
		test, err := points(fitted, rows, f.test)
		if err != nil {
			return nil, err
		}
		out.train, out.test = append(out.train, train...), append(out.test, test...)
		out.folds = append(out.folds, mape(test))
	}
	return out, nil
}

// points returns the predictions for the rows at positions.
func points(p predict, rows []training.Row, positions []int) ([]point, error) {
	picked := at(rows, positions)
	micros, err := p(picked)
	if err != nil {
		return nil, err
	}
	all := newPoints(picked, micros)
	for i, row := range positions {
		all[i].row = row
	}
	return all, nil
}

// bySet divides folds by the sets of models of their rows. It omits sets with too few rows for
// a predictor. A subset of a set's models is a different set.
func bySet(rows []training.Row, folds []fold) (enough []fold) {
	for _, whole := range folds {
		var names []string
		sets := map[string]*fold{}
		part := func(row int) *fold {
			name := modelSet(rows[row])
			if sets[name] == nil {
				sets[name], names = new(fold), append(names, name)
			}
			return sets[name]
		}
		for _, row := range whole.train {
			p := part(row)
			p.train = append(p.train, row)
		}
		for _, row := range whole.test {
			p := part(row)
			p.test = append(p.test, row)
		}
		for _, name := range names {
			if f := sets[name]; len(f.train) >= minTrainRows && len(f.test) > 0 {
				enough = append(enough, *f)
			}
		}
	}
	return enough
}

// hyperplane is the result of linear regression and of linear support vector regression:
// milliseconds as a weighted sum of standardized inputs. The last weight is the constant.
type hyperplane []float64

// smallPivot is the fraction of the first pivot below which one counts as zero. Some inputs of
// section 5.3 may be constant, or depend on others.
const smallPivot = 1e-9

// Planes predict milliseconds, as the paper does.
const microsPerMilli = 1e3

// fitLinear returns a least-squares plane over standardized inputs. It solves the normal
// equations, because there are far more rows than inputs.
func fitLinear(in *inputs) hyperplane {
	n := in.width + 1
	// Row j holds the products of input j with all inputs, and with the result.
	products := make([][]float64, n)
	for j := range products {
		products[j] = make([]float64, n+1)
	}
	row := make([]float64, n+1)
	row[in.width] = 1
	for i := range in.rows() {
		for j, v := range in.row(i) {
			row[j] = float64(v)
		}
		row[n] = in.micros[i] / microsPerMilli
		for j := range n {
			floats.AddScaled(products[j], row[j], row)
		}
	}
	// Eliminate inputs from the largest pivot on. Those that the others determine have no weight.
	h := make(hyperplane, n)
	var solved []int
	for first := 0.0; len(solved) < n; {
		next := -1
		for j := range n {
			if !slices.Contains(solved, j) && (next < 0 || products[j][j] > products[next][next]) {
				next = j
			}
		}
		pivot := products[next][next]
		if first = max(first, pivot); pivot <= smallPivot*first {
			break
		}
		floats.Scale(1/pivot, products[next])
		for j := range n {
			if j != next {
				floats.AddScaled(products[j], -products[j][next], products[next])
			}
		}
		solved = append(solved, next)
	}
	for _, j := range solved {
		h[j] = products[j][n]
	}
	return h
}

// micros returns the prediction for standardized inputs.
func (h hyperplane) micros(row []float32) float64 {
	last := len(h) - 1
	sum := h[last]
	for j, v := range row {
		sum += h[j] * float64(v)
	}
	return sum * microsPerMilli
}

// Constants of support vector regression. The paper specifies neither kernel, loss nor
// constants. The linear kernel, the squared loss outside the tube, and the default constants of
// common libraries give the errors that the paper reports. With the loss that is not squared,
// the error is three points lower.
const (
	svrPenalty = 1.0
	// svrTube is in milliseconds.
	svrTube   = 0.1
	svrRounds = 300
	// svrTolerance is the largest change of a round at which the fit ends, in milliseconds.
	svrTolerance = 1e-4
)

// fitVectors returns the plane of linear support vector regression over standardized inputs. It
// uses coordinate descent on the dual problem: each row has a multiplier, and the weights are
// the sum of the rows times their multipliers.
func fitVectors(in *inputs, random *rand.Rand) hyperplane {
	// The squared loss adds a ridge to the diagonal of the dual.
	const ridge = 1 / (2 * svrPenalty)
	h := make(hyperplane, in.width+1)
	multipliers := make([]float64, in.rows())
	for range svrRounds {
		most := 0.0
		for _, i := range random.Perm(in.rows()) {
			row := in.row(i)
			// curve is the curvature of the dual along the multiplier.
			curve := 1 + ridge
			for _, v := range row {
				curve += float64(v) * float64(v)
			}
			off := (h.micros(row) - in.micros[i]) / microsPerMilli
			was := multipliers[i]
			// This is the exact minimum along one multiplier: a Newton step, then the tube shrinks
			// the multiplier towards zero.
			free := was - (off+ridge*was)/curve
			now := math.Copysign(max(math.Abs(free)-svrTube/curve, 0), free)
			if now == was {
				continue
			}
			multipliers[i] = now
			for j, v := range row {
				h[j] += (now - was) * float64(v)
			}
			h[len(row)] += now - was
			most = max(most, math.Abs(now-was))
		}
		if most < svrTolerance {
			break
		}
	}
	return h
}
