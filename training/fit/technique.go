package fit

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

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
		f, r, err := fitNetwork(ctx, d, rows, o, stage)
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

// fitPlane fits a plane to the inputs of the paper, section 5.3.
func fitPlane(d *training.Dataset, rows []training.Row, with func(*inputs) hyperplane) predict {
	f := features(d, rows, RecipePaper)
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

// outcome is what a technique did on all folds: the error of each on the rows kept
// aside, and how many predictors it fitted.
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

// bySet divides folds by the models of their rows. A set with too few rows for a
// predictor of its own is left out. Groups of a part of the models belong to sets of
// their own.
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

// hyperplane is what linear regression and linear support vector regression
// fit: milliseconds as a weighted sum of standardised inputs.
// The last weight is the constant.
type hyperplane []float64

// smallSingular is the part of the largest singular value below which one
// counts as zero: among the inputs of section 5.3 some may be constant.
const smallSingular = 1e-9

const microsPerMilli = 1e3

// fitLinear returns the plane of least squares over standardised inputs.
func fitLinear(in *inputs) hyperplane {
	x := mat.NewDense(in.rows(), in.width+1, nil)
	y := mat.NewVecDense(in.rows(), nil)
	for i := range in.rows() {
		for j, v := range in.row(i) {
			x.Set(i, j, float64(v))
		}
		x.Set(i, in.width, 1)
		y.SetVec(i, in.micros[i]/microsPerMilli)
	}
	// Of the products, since there are far more rows than inputs. This squares
	// the singular values.
	var xx mat.Dense
	var xy, w mat.VecDense
	xx.Mul(x.T(), x)
	xy.MulVec(x.T(), y)
	var svd mat.SVD
	svd.Factorize(&xx, mat.SVDThin)
	svd.SolveVecTo(&w, &xy, svd.Rank(smallSingular))
	return w.RawVector().Data
}

// micros returns the prediction for standardised inputs.
func (h hyperplane) micros(row []float32) float64 {
	last := len(h) - 1
	sum := h[last]
	for j, v := range row {
		sum += h[j] * float64(v)
	}
	return sum * microsPerMilli
}

// Constants of support vector regression. The paper names neither kernel, loss
// nor constants. These are the linear kernel, the squared loss outside the
// tube, and the constants that libraries begin with; they give the errors that
// the paper reports. The loss that is not squared errs three points less.
const (
	svrPenalty   = 1.0
	svrTube      = 0.1 // milliseconds
	svrRounds    = 300
	svrTolerance = 1e-4 // milliseconds, the largest change of a round
)

// fitVectors returns the plane of linear support vector regression over
// standardised inputs, by coordinate descent on the dual: each row has a
// multiplier, and the weights are the sum of the rows times theirs.
func fitVectors(in *inputs, random *rand.Rand) hyperplane {
	const ridge = 1 / (2 * svrPenalty)
	h := make(hyperplane, in.width+1)
	multipliers := make([]float64, in.rows())
	for range svrRounds {
		most := 0.0
		for _, i := range random.Perm(in.rows()) {
			row := in.row(i)
			curve := 1 + ridge // of the dual along the multiplier
			for _, v := range row {
				curve += float64(v) * float64(v)
			}
			off := (h.micros(row) - in.micros[i]) / microsPerMilli
			was := multipliers[i]
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
