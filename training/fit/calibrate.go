package fit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Calibrate converts measured groups to another clock speed, at which whole models were
// measured alone. For example, a GPU may run faster while serving than during hours of
// measuring.
//
// The factor of a batch is its given isolated latency over its latency in the measured groups, and
// applies to the batch alone and in groups. A batch without a given latency has the factor of the
// nearest batch of its model. A model without any has the factor 1.
//
// The clock changes how long the device is busy, but not how long operators wait for their
// launches. A group is therefore multiplied by the mean of its spans' factors, weighted by
// their work (see [Costs]). It does not become faster than its longest span alone.
//
// Calibrate returns the converted rows, and the given latencies next to those in the groups. If
// a given latency names a model that is not in the dataset, it returns [errRows].
func Calibrate(ctx context.Context, d *training.Dataset, given []training.SoloTime) (*training.Dataset, []device.SoloTime, error) {
	for _, s := range given {
		if d.Model(s.Model) < 0 {
			return nil, nil, fmt.Errorf("%w: the isolated latencies name %s, of which no group was measured", errRows, s.Model)
		}
	}
	costs, err := Costs(ctx, d, nil)
	if err != nil {
		return nil, nil, err
	}
	times, factors := soloTimes(d, given), make([]func(models.Span) float64, len(d.Models))
	for i := range factors {
		factors[i] = factorOf(d.Models[i], times, costs[i])
	}
	calibrated := *d
	calibrated.Rows = slices.Clone(d.Rows)
	for i := range calibrated.Rows {
		var busy, scaled, longest float64
		r := &calibrated.Rows[i]
		for _, s := range r.Group.Spans {
			at := costs[s.Service].At(s.Size, s.SeqLen)
			micros, work := at.Span(s.Start, s.End)
			factor := factors[s.Service](s)
			busy, scaled, longest = busy+work, scaled+work*factor, max(longest, micros*factor)
		}
		factor := scaled / busy
		if len(r.Group.Spans) > 1 {
			// This keeps the group from becoming faster than its longest span. It never makes
			// it slower than measured.
			factor = max(factor, min(longest/r.Median, 1))
		}
		for _, micros := range []*float64{&r.Median, &r.Mean, &r.Std, &r.Device} {
			*micros *= factor
		}
	}
	return &calibrated, times, calibrated.Check()
}

// factorOf returns the function from spans of a model to their factor. If the whole model was not
// measured alone, its inferred costs replace that latency.
func factorOf(m training.Model, times []device.SoloTime, costs *predictor.CostGrid) func(models.Span) float64 {
	times = slices.DeleteFunc(slices.Clone(times), func(s device.SoloTime) bool { return s.Model != m.Name })
	if len(times) == 0 {
		return func(models.Span) float64 { return 1 }
	}
	return func(of models.Span) float64 {
		s := slices.MinFunc(times, func(a, b device.SoloTime) int {
			return cmp.Compare(predictor.Apart(of.Size, of.SeqLen, a.Size, a.SeqLen), predictor.Apart(of.Size, of.SeqLen, b.Size, b.SeqLen))
		})
		at := costs.At(s.Size, s.SeqLen)
		whole, _ := at.Span(0, m.Operators)
		return s.Micros / cmp.Or(s.Groups, whole)
	}
}

// soloTimes returns the given isolated latencies together with the medians of the measured
// groups that consist only of the whole model.
func soloTimes(d *training.Dataset, given []training.SoloTime) (times []device.SoloTime) {
	alone := map[models.Span][]float64{}
	for i := range d.Rows {
		if spans := d.Rows[i].Group.Spans; len(spans) == 1 {
			alone[spans[0]] = append(alone[spans[0]], d.Rows[i].Median)
		}
	}
	for _, s := range given {
		model := d.Model(s.Model)
		t := device.SoloTime{Model: s.Model, Size: s.Size, SeqLen: s.SeqLen, Micros: s.Micros}
		if measured := alone[models.Span{Service: models.ServiceID(model), End: d.Models[model].Operators, Size: s.Size, SeqLen: s.SeqLen}]; len(measured) > 0 {
			slices.Sort(measured)
			t.Groups = stats.Quantile(measured, 0.5)
		}
		times = append(times, t)
	}
	return times
}
