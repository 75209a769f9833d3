package sim

import (
	"testing"

	"github.com/overlapd/overlapd/lab/synthetic"
)

// A query that is about to expire does not keep the batches of a service small under overload.
func TestOverloadKeepsBatchesLarge(t *testing.T) {
	for _, c := range []struct {
		maxBatch  int
		qps, most float64
	}{{32, 4500, 1}, {32, 6000, 15}, {16, 4200, 2.5}} {
		r := run(t, Scenario{
			Device: modelOf(t, synthetic.Device()), Predictor: synthetic.Predictor(), Plan: true, Policy: "overlap",
			Arrivals: Arrivals{Process: Poisson, QPS: c.qps}, Queries: 6000, Seed: 1,
			Services: []Service{{Name: "resnet50", Target: 10 * ms, MaxBatch: c.maxBatch, Sizes: []int{1}}},
		})
		if got := 100 * r.Violations; got > c.most {
			t.Errorf("batches of %d at %v queries a second: %.2f %% violate their target, want at most %v", c.maxBatch, c.qps, got, c.most)
		} else {
			t.Logf("batches of %d at %v queries a second: %.2f %% violate their target", c.maxBatch, c.qps, got)
		}
	}
}
