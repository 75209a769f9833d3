package fit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/training"
)

// Calibrate carries measured groups over to the clock at which whole models were seen
// to take other times alone, as a GPU that serves may run faster than one that was
// measured for hours. Each given time, by what the groups show of the same batch, is the
// factor of that batch, alone and in groups alike; a batch of which no time is given has
// that of the nearest of its model, a model without any has 1. A clock changes how long
// the device is busy, not how long operators wait for their launches. So a group takes
// the mean of the factors of its spans, each counting by its work (see [Costs]), and at
// least what the longest of them takes alone. A group that takes as long as its spans one
// after another still does.
//
// It returns the rows with their times so multiplied, and the given times beside those
// of the groups. A time of a model that is not in the dataset is [errRows].
func Calibrate(ctx context.Context, d *training.Dataset, given []training.SoloTime) (*training.Dataset, []device.SoloTime, error) {
	for _, s := range given {
		if d.Model(s.Model) < 0 {
			return nil, nil, fmt.Errorf("%w: the solo times name %s, of which no group was measured", errRows, s.Model)
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
			factor = max(factor, min(longest/r.Median, 1))
		}
		for _, micros := range []*float64{&r.Median, &r.Mean, &r.Std, &r.Device} {
			*micros *= factor
		}
	}
	return &calibrated, times, calibrated.Check()
}

// factorOf returns what spans of a model are multiplied by. Costs stand in for the groups
// of nothing but the whole model where none was measured.
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

// soloTimes puts given solo times beside the median of the measured groups of nothing
// but the whole model.
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
