package sim

import (
	"testing"

	"github.com/overlapd/overlapd/lab/synthetic"
)

// TestPrioritiesProtect: where a device has time for two services, a priority for one of them
// costs the other nothing. With more load it is the other one that loses, and under overlap less
// than under a policy that serves priorities first.
func TestPrioritiesProtect(t *testing.T) {
	serve := func(policy string, qps float64) (first, other float64) {
		t.Helper()
		sc := Scenario{
			Device: modelOf(t, synthetic.Device()), Predictor: synthetic.Predictor(), Plan: true, Policy: policy,
			Arrivals: Arrivals{Process: Poisson, QPS: qps}, Queries: 6000, Seed: 1,
			Services: []Service{
				{Name: "resnet50", Target: 50 * ms, MaxBatch: 8, Sizes: []int{1}, Priority: 1},
				{Name: "vgg19", Target: 50 * ms, MaxBatch: 8, Sizes: []int{1}},
			},
		}
		r := run(t, sc)
		return 100 * r.Services[0].Violations, 100 * r.Services[1].Violations
	}
	for _, c := range []struct{ qps, other float64 }{{1200, 0.1}, {2400, 1}, {3600, 60}, {4800, 85}} {
		first, other := serve("overlap", c.qps)
		_, published := serve("abacus", c.qps)
		t.Logf("at %v queries a second %.2f %% of those with priority and %.2f %% of the others violate their target, %.2f %% under abacus", c.qps, first, other, published)
		if first > 0.5 || other > c.other || other > published+1 {
			t.Errorf("want at most 0.5 %% and %v %%, and of the others no more than under abacus", c.other)
		}
	}
}
