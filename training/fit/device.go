package fit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// DeviceReport describes how a device was fitted, and its errors on held-out rows.
type DeviceReport struct {
	fitted
	device.Tested
	Solo []device.SoloTime `json:"solo,omitempty"`
}

// Device fits a device to a dataset. If solo is not empty, it first calibrates the rows to
// these isolated latencies. Equal arguments give equal profiles, except for Created, which the
// caller sets.
func Device(ctx context.Context, d *training.Dataset, solo []training.SoloTime, o Options) (*device.Profile, *DeviceReport, error) {
	if o.Split == SplitFolds {
		return nil, nil, fmt.Errorf("%w: a device cannot be made with the split %s", errOptions, o.Split)
	}
	folds, err := begin(d, &o)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	var times []device.SoloTime
	if len(solo) > 0 {
		if d, times, err = Calibrate(ctx, d, solo); err != nil {
			return nil, nil, err
		}
	}
	rows, test := at(d.Rows, folds[0].train), at(d.Rows, folds[0].test)
	p, err := makeProfile(ctx, d, rows, test, &o)
	if err != nil {
		return nil, nil, err
	}
	p.Solo = times
	r := &DeviceReport{fitted: newFitted(d, &o, len(rows), len(test)), Tested: p.Tested, Solo: p.Solo}
	r.Seconds, r.MAPETest = time.Since(began).Seconds(), p.Checks.Latency
	return p, r, p.Validate()
}

// makeProfile fits a device to some rows of a dataset and tests it on others. Its costs come
// from a draft, a network without a device's guarantees. The draft's error shows what the
// guarantees cost.
func makeProfile(ctx context.Context, d *training.Dataset, rows, test []training.Row, o *Options) (*device.Profile, error) {
	// The draft is only for the costs, so the size of a predictor is enough.
	small := *o
	small.Hidden = DefaultOptions().Hidden
	draft, _, err := fitNetwork(ctx, d, rows, &small, "costs")
	if err != nil {
		return nil, err
	}
	if draft.Features.Spans > device.MaxSpans {
		return nil, fmt.Errorf("%w: a group of %d spans; a device has at most %d", errRows, draft.Features.Spans, device.MaxSpans)
	}
	p := &device.Profile{Format: device.Format, Device: d.Device, Seed: o.Seed, Rows: len(d.Rows), Spread: spreadOf(rows)}
	p.Network.Spans, p.Network.Models = draft.Features.Spans, draft.Features.Models
	if p.Network.Layers, err = fitGrowing(ctx, p.Network.Models, rows, o, "device"); err != nil {
		return nil, err
	}
	return p, testProfile(p, draft, rows, test)
}

// testProfile computes the errors of a profile on held-out rows.
func testProfile(p *device.Profile, draft *predictor.File, rows, test []training.Row) error {
	model, err := device.NewModel(p)
	if err != nil {
		return err
	}
	free, err := predictWith(draft, test)
	if err != nil {
		return err
	}
	c, kept, latency := &p.Checks, make([]float64, len(test)), make([]float64, len(test))
	for i := range test {
		kept[i], latency[i] = model.Unheld(test[i].Group), float64(model.Latency(test[i].Group))/1e3
		if by := latency[i]/kept[i] - 1; by > leastRaise {
			c.Raised++
			c.RaisedMost = max(c.RaisedMost, by)
		}
	}
	all := newPoints(test, latency)
	var alone, several []point
	for _, p := range all {
		if len(test[p.row].Group.Spans) == 1 {
			alone = append(alone, p)
		} else {
			several = append(several, p)
		}
	}
	c.Free, c.Kept, c.Latency = mape(newPoints(test, free)), mape(newPoints(test, kept)), mape(all)
	c.Repeated, c.RepeatedOf = repeated(rows, test)
	p.Test.Alone, p.Test.Several, p.Test.Spread = errorsOf(alone), errorsOf(several), spreadTest(&p.Spread, test, latency)
	return nil
}

// leastRaise is the relative raise up to which it counts as rounding.
const leastRaise = 1e-5

// repeated returns the error of predicting a held-out row of one span by the median of the
// other rows of the same span. It is a lower bound of what any device fitted to these rows can
// reach.
func repeated(rows, test []training.Row) (percent float64, of int) {
	same := map[models.Span][]float64{}
	for _, part := range [][]training.Row{rows, test} {
		for i := range part {
			if spans := part[i].Group.Spans; len(spans) == 1 {
				same[spans[0]] = append(same[spans[0]], part[i].Median)
			}
		}
	}
	var points []point
	for i := range test {
		spans := test[i].Group.Spans
		if len(spans) > 1 || len(same[spans[0]]) < leastRepeats {
			continue
		}
		others := slices.Clone(same[spans[0]])
		// The row must not take part in its own prediction.
		k := slices.Index(others, test[i].Median)
		others = slices.Delete(others, k, k+1)
		slices.Sort(others)
		points = append(points, point{measured: test[i].Median, predicted: stats.Quantile(others, 0.5)})
	}
	return mape(points), len(points)
}

// leastRepeats is the number of rows of a span from which on it takes part in repeated.
const leastRepeats = 3

// signed is Adam for the network of a device, whose output must not decrease when a growing input
// increases. After each step it sets weights of the wrong sign to zero.
type signed struct {
	adam
	widths  []int
	growing []bool
}

// start flips the weights that have the wrong sign. All units of a layer then act in the same
// direction, so start also reduces the weights: each layer should pass on about the magnitude
// it receives.
func (s *signed) start(p *perceptron) {
	s.adam.start(p)
	s.widths = p.widths
	for layer := range len(s.widths) - 1 {
		gain := float32(1)
		if in, out := float64(s.widths[layer]), float64(s.widths[layer+1]); layer > 0 {
			gain = float32(4 / in / math.Sqrt(6/(in+out)))
		}
		s.each(layer, p.params[2*layer].values, func(v, sign float32) float32 {
			return gain * sign * float32(math.Abs(float64(v)))
		})
	}
}

// each replaces the weights of a layer whose sign is constrained by f.
func (s *signed) each(layer int, values []float32, f func(v, sign float32) float32) {
	inputs, outputs := s.widths[layer], s.widths[layer+1]
	for at := range values {
		sign := device.Sign(layer, len(s.widths)-1, at/outputs, inputs, at%outputs, outputs, s.growing)
		if sign != 0 {
			values[at] = f(values[at], float32(sign))
		}
	}
}

// update takes a step of Adam and then projects the weights onto their allowed signs. Biases
// may have any sign.
func (s *signed) update(i int, p *param, gradient []float32) {
	s.adam.update(i, p, gradient)
	if p.decays {
		s.each(i/2, p.values, func(v, sign float32) float32 {
			if v*sign < 0 {
				return 0
			}
			return v
		})
	}
}

// fitGrowing fits the network of a device to rows.
func fitGrowing(ctx context.Context, list []predictor.FeatureModel, rows []training.Row, o *Options, stage string) ([]predictor.Layer, error) {
	random := rand.New(rand.NewPCG(o.Seed, 3))
	encoder := device.NewEncoder(list)
	in := encode(encoder.Width, encoder.Encode, rows)
	s := &signed{adam: adam{decay: oursDecay}, growing: encoder.Growing}
	return trainLayers(ctx, in, 0, s, o, newSchedule(o, len(rows)), random, stage)
}

// Constants of the spread.
const (
	// spreadParts is the number of quantiles in a band.
	spreadParts = 21
	// leastBandRows is the number of rows below which a band is merged with the next.
	leastBandRows = 200
	// leastKindRows is the number of groups with that many spans below which they have no bands.
	// The bands of fewer spans then apply to them.
	leastKindRows = 10
)

// spreadEdges are the latencies at which bands may end, in microseconds.
var spreadEdges = []float64{2e3, 5e3, 10e3, 15e3, 20e3, 30e3, 40e3, math.Inf(1)}

// spreadOf computes the spread of groups from the standard deviations of their runs.
func spreadOf(rows []training.Row) device.Spread {
	var s device.Spread
	bySpans := map[int][]training.Row{}
	for _, r := range rows {
		bySpans[len(r.Group.Spans)] = append(bySpans[len(r.Group.Spans)], r)
	}
	for n := 1; n <= device.MaxSpans; n++ {
		s.Bands = append(s.Bands, bandsOf(n, bySpans[n])...)
	}
	// The skew is that of all groups, because single bands have too few rows to show it.
	s.Slow, s.Fast = skewOf(rows)
	return s
}

// bandsOf returns the bands of groups with that many spans, by ascending latency.
func bandsOf(spans int, rows []training.Row) []device.SpreadBand {
	if len(rows) < leastKindRows {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b training.Row) int { return cmp.Compare(a.Median, b.Median) })
	var bands []device.SpreadBand
	from, begins := 0, 0.0
	for _, edge := range spreadEdges {
		to, _ := slices.BinarySearchFunc(rows, edge, func(r training.Row, edge float64) int { return cmp.Compare(r.Median, edge) })
		// Both this band and the rest must have enough rows.
		if to < len(rows) && (to-from < leastBandRows || len(rows)-to < leastBandRows) || to == from {
			continue
		}
		bands = append(bands, device.SpreadBand{Spans: spans, Micros: begins, Parts: relativeSpreads(rows[from:to], spreadParts)})
		from, begins = to, edge
	}
	return bands
}

// relativeSpreads returns n evenly spaced quantiles of standard deviation over median.
func relativeSpreads(rows []training.Row, n int) []float64 {
	parts := make([]float64, len(rows))
	for i := range rows {
		parts[i] = min(rows[i].Std/rows[i].Median, device.MaxSpread)
	}
	slices.Sort(parts)
	picked := make([]float64, n)
	for i := range picked {
		picked[i] = parts[i*(len(parts)-1)/(n-1)]
	}
	return picked
}

// skewOf measures how much wider late runs spread than early ones. It models the runs as two
// half normal distributions joined at the median, with half of the runs on each side. Their
// widths follow from the distance of the mean from the median in standard deviations.
func skewOf(rows []training.Row) (slow, fast float64) {
	var mean, square float64
	for i := range rows {
		mean += (rows[i].Mean - rows[i].Median) / rows[i].Median
		square += rows[i].Std / rows[i].Median
	}
	lean := 0.0
	if square > 0 {
		lean = mean / square
	}
	// For the widths a and b, the mean is (a-b)/√(2π) and the variance (a²+b²)/2 - mean².
	apart := min(max(lean, -maxLean), maxLean) * math.Sqrt(2*math.Pi)
	both := 2 * (1 + lean*lean)
	middle := math.Sqrt(max(both/2-apart*apart/4, 0))
	return max(middle+apart/2, 0), max(middle-apart/2, 0)
}

// maxLean keeps the early half from vanishing.
const maxLean = 0.5

// testedParts are the quantiles at which a spread is tested.
var testedParts = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.95}

// spreadTest compares the spread of held-out groups with the spread of the profile for similar
// groups.
func spreadTest(s *device.Spread, rows []training.Row, latency []float64) []device.SpreadQuantiles {
	var list []device.SpreadQuantiles
	for n := 1; n <= device.MaxSpans; n++ {
		var measured, predicted []float64
		for i := range rows {
			if len(rows[i].Group.Spans) == n {
				measured = append(measured, rows[i].Std/rows[i].Median)
				predicted = append(predicted, s.Parts(n, latency[i])...)
			}
		}
		slices.Sort(measured)
		slices.Sort(predicted)
		if len(measured) == 0 || len(predicted) == 0 {
			continue
		}
		for _, part := range testedParts {
			list = append(list, device.SpreadQuantiles{
				Spans: n, Rows: len(measured), Part: part,
				Measured: stats.Quantile(measured, part), Predicted: stats.Quantile(predicted, part),
			})
		}
	}
	return list
}
