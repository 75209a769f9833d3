package sim

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// busyScenario has two services that ask for about as much as the device has.
func busyScenario(policy string) Scenario {
	return Scenario{
		Services: []Service{
			{Name: "a", Target: 50 * time.Millisecond, Sizes: []int{1, 4}, MaxBatch: 8},
			{Name: "b", Target: 80 * time.Millisecond, Sizes: []int{1, 4, 8}},
		},
		Arrivals: Arrivals{Process: Poisson, QPS: 100}, Queries: 2000, Seed: 1, Policy: policy,
		Device: newFormula(0.6, 0.05, 400*time.Microsecond, 300*time.Microsecond),
	}
}

func run(t testing.TB, sc Scenario) *Result {
	t.Helper()
	r, err := Run(sc)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSameSeedSameResult(t *testing.T) {
	for _, policy := range []string{"fcfs", "sjf", "edf", "abacus", "overlap"} {
		sc := busyScenario(policy)
		sc.Check = true
		first := text(t, run(t, sc))
		if diff := cmp.Diff(first, text(t, run(t, sc))); diff != "" {
			t.Errorf("%s: twice the same differs:\n%s", policy, diff)
		}
		sc.Seed++
		if first == text(t, run(t, sc)) {
			t.Errorf("%s: another seed gives the same", policy)
		}
		t.Log(first)
	}
}
