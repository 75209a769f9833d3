package sim

import (
	"fmt"
	"testing"
)

// TestDeferredSharesThePool: of 16 devices eight services have two each, and so must not
// give up first queries for the sake of batches as large as those of one that has all 16.
func TestDeferredSharesThePool(t *testing.T) {
	sc := Scenario{
		Policy: "deferred", Device: linearDevice(t, "a,2,9\n"), Devices: 16, Dispatch: Pool, Queries: 20_000,
		Arrivals: Arrivals{Process: Gamma, QPS: 4500, Shape: 0.1},
	}
	for i := range 8 {
		sc.Services = append(sc.Services, Service{Name: fmt.Sprint(i), Model: "a", Target: 50 * ms, MaxBatch: 20})
	}
	if r := run(t, sc); r.Violations > 0.0115 {
		t.Errorf("%.2f %% violations, want at most 1.15 %%", 100*r.Violations)
	}
}
