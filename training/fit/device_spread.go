package fit

import (
	"cmp"
	"math"
	"slices"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/training"
)

// Constants of the spread.
const (
	spreadParts   = 21  // quantiles of a band
	leastBandRows = 200 // a band with fewer joins the next
	leastKindRows = 10  // groups of so many spans, if fewer, are taken for those of fewer spans
)

// spreadEdges is where bands may begin, in microseconds.
var spreadEdges = []float64{0, 2e3, 5e3, 10e3, 15e3, 20e3, 30e3, 40e3}

// spreadOf measures how much the runs of groups differ.
func spreadOf(rows []training.Row) device.Spread {
	var s device.Spread
	bySpans := map[int][]training.Row{}
	for _, r := range rows {
		bySpans[len(r.Group.Spans)] = append(bySpans[len(r.Group.Spans)], r)
	}
	for n := 1; n <= device.MaxSpans; n++ {
		s.Bands = append(s.Bands, bandsOf(n, bySpans[n])...)
	}
	s.Slow, s.Fast = skewOf(rows)
	return s
}

func bandsOf(spans int, rows []training.Row) []device.SpreadBand {
	if len(rows) < leastKindRows {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b training.Row) int { return cmp.Compare(a.Median, b.Median) })
	var bands []device.SpreadBand
	from, begins := 0, 0.0
	for i := range spreadEdges {
		to := len(rows)
		if i+1 < len(spreadEdges) {
			to, _ = slices.BinarySearchFunc(rows, spreadEdges[i+1], func(r training.Row, edge float64) int { return cmp.Compare(r.Median, edge) })
		}
		if to < len(rows) && (to-from < leastBandRows || len(rows)-to < leastBandRows) || to == from {
			continue
		}
		bands = append(bands, device.SpreadBand{Spans: spans, Micros: begins, Parts: relativeSpreads(rows[from:to], spreadParts)})
		if from = to; i+1 < len(spreadEdges) {
			begins = spreadEdges[i+1]
		}
	}
	return bands
}

// relativeSpreads returns evenly spaced quantiles of standard deviation over
// median.
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

// skewOf measures how much wider late runs spread than early ones. Half of the runs are on each side
// of the median, each half as a normal distribution is; the distance of the
// mean from the median, in standard deviations, gives the widths.
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
	// The widths a and b: mean (a-b)/√(2π), variance (a²+b²)/2 - mean².
	apart := min(max(lean, -maxLean), maxLean) * math.Sqrt(2*math.Pi)
	both := 2 * (1 + lean*lean)
	middle := math.Sqrt(max(both/2-apart*apart/4, 0))
	return max(middle+apart/2, 0), max(middle-apart/2, 0)
}

// maxLean keeps the early half from vanishing.
const maxLean = 0.5

// testedParts are the quantiles that a spread is tested at.
var testedParts = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.95}

// spreadTest compares how much groups kept aside spread with the spread that a
// profile has for groups of their kind.
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
