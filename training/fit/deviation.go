package fit

import (
	"math"
	"slices"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/stats"
)

// point is a row that was kept aside, and what was predicted of it.
type point struct {
	row       int // in the dataset
	measured  float64
	predicted float64 // microseconds, both
}

// off is how far the prediction is from the measurement, as a part of it.
func (p point) off() float64 { return math.Abs(p.predicted/p.measured - 1) }

// mape returns the mean absolute percentage error: equation 1 of the paper.
func mape(points []point) float64 {
	sum := 0.0
	for _, p := range points {
		sum += p.off()
	}
	return 100 * sum / float64(max(len(points), 1))
}

// leastPredicted keeps the quotients of measured and predicted finite where a
// line predicts no time at all, or less.
const leastPredicted = 1e-2 // of the measured time

// errorsOf sums up how far predictions were off.
func errorsOf(points []point) predictor.Errors {
	if len(points) == 0 {
		return predictor.Errors{Quantiles: predictor.Quantiles{P01: 1, P50: 1, P90: 1, P95: 1, P99: 1}}
	}
	ratios := make([]float64, len(points))
	for i, p := range points {
		ratios[i] = p.measured / max(p.predicted, leastPredicted*p.measured)
	}
	slices.Sort(ratios)
	return predictor.Errors{
		Rows: len(points), MAPE: mape(points),
		Quantiles: predictor.Quantiles{
			P01: stats.Quantile(ratios, 0.01), P50: stats.Quantile(ratios, 0.50), P90: stats.Quantile(ratios, 0.90),
			P95: stats.Quantile(ratios, 0.95), P99: stats.Quantile(ratios, 0.99),
		},
	}
}
