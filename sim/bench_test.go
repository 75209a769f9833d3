package sim

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/overlap"
)

// BenchmarkRun serves more than the device can do one query after another, with
// merging, and a network as the scheduler's predictor.
func BenchmarkRun(b *testing.B) {
	f := newFormula(0.4, 0.05, 400*time.Microsecond, 300*time.Microsecond)
	file := formulaPredictor(b, f, 1)
	for _, p := range overlap.Policies() {
		b.Run(p.Name, func(b *testing.B) {
			sc := busyScenario(p.Name)
			sc.Device, sc.Predictor, sc.Queries = f, file, max(b.N, 2)
			sc.Arrivals.QPS = 200
			b.ReportAllocs()
			run(b, sc)
			b.ReportMetric(float64(sc.Queries)/b.Elapsed().Minutes(), "queries/min")
		})
	}
}
