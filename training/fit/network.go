package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Constants of the recipes.
const (
	oursRate  = 0.004
	oursDecay = 0.1
	// oursSteps corresponds to 100 epochs of 30,000 rows.
	oursSteps     = 23_500
	oursBatch     = 128
	oursMinBatch  = 16
	oursMinEpochs = 10
	oursMaxEpochs = 100
	// draftPart divides the epochs of the final network to give those of the draft.
	draftPart = 4

	paperRate   = 0.001
	paperEpochs = 250
	paperBatch  = 128
)

// schedule says how weights change during training. course maps a step to the fraction of rate that
// applies, and decay is the weight decay.
type schedule struct {
	batch  int
	epochs int
	decay  float64
	rate   float64
	course func(step, steps int) float64
}

// newSchedule returns the schedule for that many rows. RecipeOurs keeps the number of steps about
// constant, and uses smaller batches for fewer rows.
func newSchedule(o *Options, rows int) schedule {
	s := schedule{batch: min(paperBatch, rows), epochs: paperEpochs, rate: paperRate, course: cosine}
	if o.Recipe == RecipeOurs {
		s.batch = oursBatch
		for s.batch > oursMinBatch && s.batch*32 > rows {
			s.batch /= 2
		}
		s.batch = min(s.batch, rows)
		s.epochs = min(max(oursSteps/(rows/s.batch), oursMinEpochs), oursMaxEpochs)
		s.decay = oursDecay
		if few(o, rows) {
			s.epochs, s.decay = fewEpochs, fewDecay
		}
		s.rate, s.course = oursRate, oneCycle
	}
	if o.Epochs > 0 {
		s.epochs = o.Epochs
	}
	return s
}

// fitNetwork fits a predictor to rows. The file is complete except for its test errors.
// fitNetwork also returns the regularization, which is nil for RecipePaper.
func fitNetwork(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, stage string) (*predictor.File, *regularization, error) {
	if o.Recipe == RecipePaper {
		f := newFile(d, rows, o)
		return f, nil, fitLayers(ctx, f, rows, o, newSchedule(o, len(rows)), rand.New(rand.NewPCG(o.Seed, 1)), stage)
	}
	r, err := regularize(ctx, d, rows, o, stage)
	if err != nil {
		return nil, nil, err
	}
	f, err := fitOurs(ctx, d, rows, o, r, stage)
	return f, r, err
}

// fitOurs fits costs, and a network that corrects them. Effects that the costs cannot express
// distort the inferred costs. A draft network therefore learns these effects first, and the
// final costs are inferred from the rows without the draft's correction.
func fitOurs(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, r *regularization, stage string) (*predictor.File, error) {
	random := rand.New(rand.NewPCG(o.Seed, 1))
	draft := newFile(d, rows, o)
	if err := fitCosts(ctx, draft, d, rows, o, r.priors, random); err != nil {
		return nil, err
	}
	plan := newSchedule(o, len(rows))
	plan.epochs = max(plan.epochs/draftPart, 1)
	if err := fitLayers(ctx, draft, rows, o, plan, random, stage+", draft"); err != nil {
		return nil, err
	}
	// The draft is shrunk like the final network: a correction that is mostly noise must not be
	// removed from the rows.
	shrink(draft.Layers, r.Kept)
	plain, err := withoutCorrection(draft, rows)
	if err != nil {
		return nil, err
	}
	f := newFile(d, rows, o)
	if err := fitCosts(ctx, f, d, plain, o, r.priors, random); err != nil {
		return nil, err
	}
	if err := fitLayers(ctx, f, rows, o, newSchedule(o, len(rows)), random, stage); err != nil {
		return nil, err
	}
	shrink(f.Layers, r.Kept)
	return f, nil
}

// newFile returns a file with its features, but without costs and layers.
func newFile(d *training.Dataset, rows []training.Row, o *Options) *predictor.File {
	f := &predictor.File{
		Format: predictor.Format, Device: d.Device, Recipe: o.Recipe, Seed: o.Seed, Rows: len(rows),
		Features: features(d, rows, o.Recipe), Output: predictor.OutputMicros,
	}
	if o.Recipe == RecipeOurs {
		f.Output = predictor.OutputRatio
	}
	return f
}

// fitCosts sets the costs in the file's features.
func fitCosts(ctx context.Context, f *predictor.File, d *training.Dataset, rows []training.Row, o *Options, priors costPriors, random *rand.Rand) error {
	costs, err := inferCosts(ctx, d.Models, rows, o.Operators, priors, random)
	for i := range costs {
		f.Features.Models[i].Costs = costs[i]
	}
	return err
}

// fitLayers sets the layers of the file.
func fitLayers(ctx context.Context, f *predictor.File, rows []training.Row, o *Options, plan schedule, random *rand.Rand, stage string) error {
	bits, descent := 0, optimizer(&adam{decay: plan.decay})
	if o.Recipe == RecipePaper {
		bits, descent = len(f.Features.Models), &sgd{}
	}
	var err error
	f.Layers, err = trainLayers(ctx, encodeFeatures(&f.Features, rows), bits, descent, o, plan, random, stage)
	return err
}

// withoutCorrection returns the rows with their latencies divided by the correction that the file's
// network applies to the costs.
func withoutCorrection(f *predictor.File, rows []training.Row) ([]training.Row, error) {
	in := encodeFeatures(&f.Features, rows)
	predicted, err := predictWith(f, rows)
	if err != nil {
		return nil, err
	}
	plain := slices.Clone(rows)
	for i := range plain {
		plain[i].Median *= in.bases[i] / predicted[i]
	}
	return plain, nil
}

// features describes the models of a dataset, with the ranges that occur in rows.
func features(d *training.Dataset, rows []training.Row, r string) predictor.Features {
	f := predictor.Features{Set: predictor.FeaturesModel}
	if r == RecipePaper {
		f.Set = predictor.FeaturesPaper
	}
	for _, m := range d.Models {
		f.Models = append(f.Models, predictor.FeatureModel{Name: m.Name, Hash: m.Hash, Operators: m.Operators, MaxSize: 1})
	}
	for i := range rows {
		f.Spans = max(f.Spans, len(rows[i].Group.Spans))
		for _, s := range rows[i].Group.Spans {
			m := &f.Models[s.Service]
			m.MaxSize = max(m.MaxSize, s.Size)
			m.MaxSeqLen = max(m.MaxSeqLen, s.SeqLen)
		}
	}
	return f
}

// trainLayers trains a network. It standardizes the inputs, except for the first, which are bits.
//
// For RecipeOurs, the target is the logarithm of latency over base, scaled to its spread over
// the rows. For RecipePaper, it is milliseconds, neither centered nor scaled, and its gradient
// descent has no momentum. The paper does not specify this. Of the variants tried, this one
// reproduces the reported error. Without standardized slots the error is near 15 %, and with
// momentum near 4 %.
func trainLayers(ctx context.Context, in *inputs, bits int, descent optimizer, o *Options, plan schedule, random *rand.Rand, stage string) ([]predictor.Layer, error) {
	targets, scale := in.targets(o.Recipe)
	scaled := newScaling(in)
	for j := range bits {
		scaled.mean[j], scaled.spread[j] = 0, 1
	}
	scaled.apply(in)
	loss := squared
	if o.Recipe == RecipeOurs {
		loss = relative
	}
	p := newPerceptron(slices.Concat([]int{in.width}, o.Hidden, []int{1}), plan.batch, loss, float32(scale), random)
	descent.start(p)
	if err := p.train(ctx, in, targets, plan, descent, o, random, stage); err != nil {
		return nil, err
	}
	return p.layers(scaled, scale), nil
}

// targets returns the target output of each row, and the factor by which outputs must be
// multiplied.
func (in *inputs) targets(r string) ([]float32, float64) {
	targets := make([]float32, in.rows())
	if r == RecipePaper {
		for i := range targets {
			targets[i] = float32(in.micros[i] / in.bases[i])
		}
		return targets, 1
	}
	logs := make([]float64, in.rows())
	var square float64
	for i := range logs {
		logs[i] = math.Log(in.micros[i] / in.bases[i])
		square += logs[i] * logs[i]
	}
	scale := max(math.Sqrt(square/float64(len(logs))), leastScale)
	for i := range targets {
		targets[i] = float32(logs[i] / scale)
	}
	return targets, scale
}

// leastScale keeps targets finite if all bases are exact.
const leastScale = 1e-3

// train runs all epochs. Each epoch shuffles the rows and omits those that do not fill a batch.
func (p *perceptron) train(ctx context.Context, in *inputs, targets []float32, plan schedule, with optimizer, o *Options, random *rand.Rand, stage string) error {
	// plan.batch is at most the number of rows, so there is at least one step per epoch.
	perEpoch := in.rows() / plan.batch
	steps := perEpoch * plan.epochs
	began := time.Now()
	order := make([]int, in.rows())
	for i := range order {
		order[i] = i
	}
	for epoch := range plan.epochs {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		sum := 0.0
		for b := range perEpoch {
			if err := ctx.Err(); err != nil {
				return err
			}
			for i, row := range order[b*plan.batch:][:plan.batch] {
				copy(p.inputs[i*in.width:], in.row(row))
				p.targets[i] = targets[row]
			}
			sum += p.step(with, plan.rate*plan.course(epoch*perEpoch+b, steps))
		}
		// Later epochs cannot recover from a loss that is not finite.
		if math.IsNaN(sum) || math.IsInf(sum, 0) {
			return fmt.Errorf("%w in epoch %d", errDiverged, epoch+1)
		}
		done := epoch + 1
		o.report(Progress{
			Stage: stage, Epoch: done, Epochs: plan.epochs, Loss: sum / float64(perEpoch),
			Left: time.Since(began) / time.Duration(done) * time.Duration(plan.epochs-done),
		})
	}
	return nil
}

// predictWith returns the predictions of a file for rows, in microseconds. It uses the code
// that serves.
func predictWith(f *predictor.File, rows []training.Row) ([]float64, error) {
	// A file must have plausible test errors to be valid; these are not known yet.
	untested := *f
	untested.Test = predictor.Errors{Rows: 1, Quantiles: predictor.Exact}
	groups := make([]models.Group, len(rows))
	for i := range rows {
		groups[i] = rows[i].Group
	}
	return untested.Predict(groups)
}

// inputs holds rows in the form that a network takes: values has width inputs for each row.
// bases are the times to which outputs are relative, and micros the measured latencies, both in
// microseconds.
type inputs struct {
	width  int
	values []float32
	bases  []float64
	micros []float64
}

// encodeFeatures encodes rows as a predictor does.
func encodeFeatures(f *predictor.Features, rows []training.Row) *inputs {
	return encode(f.Width(), f.Encoder(), rows)
}

// encode encodes rows with any encoder.
func encode(width int, encoder func(g models.Group, inputs []float32) (baseMicros float64), rows []training.Row) *inputs {
	in := &inputs{
		width:  width,
		values: make([]float32, len(rows)*width),
		bases:  make([]float64, len(rows)),
		micros: make([]float64, len(rows)),
	}
	for i := range rows {
		in.bases[i] = encoder(rows[i].Group, in.row(i))
		in.micros[i] = rows[i].Median
	}
	return in
}

// rows returns the number of rows.
func (in *inputs) rows() int { return len(in.bases) }

// row returns the inputs of row i.
func (in *inputs) row(i int) []float32 { return in.values[i*in.width:][:in.width] }

// scaling holds the means and standard deviations of inputs.
type scaling struct {
	mean, spread []float64
}

// leastSpread is the standard deviation below which an input counts as constant.
const leastSpread = 1e-6

// newScaling computes the scaling of rows. A constant input is only centered.
func newScaling(in *inputs) *scaling {
	s := &scaling{mean: make([]float64, in.width), spread: make([]float64, in.width)}
	n := float64(in.rows())
	for i := range in.rows() {
		for j, v := range in.row(i) {
			s.mean[j] += float64(v) / n
		}
	}
	for i := range in.rows() {
		for j, v := range in.row(i) {
			d := float64(v) - s.mean[j]
			s.spread[j] += d * d / n
		}
	}
	for j, v := range s.spread {
		if s.spread[j] = math.Sqrt(v); s.spread[j] < leastSpread {
			s.spread[j] = 1
		}
	}
	return s
}

// apply standardizes the inputs in place.
func (s *scaling) apply(in *inputs) {
	for i := range in.rows() {
		for j, v := range in.row(i) {
			in.row(i)[j] = float32((float64(v) - s.mean[j]) / s.spread[j])
		}
	}
}
