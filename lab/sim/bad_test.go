package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// batched is a device on which 32 queries in a batch take twice as long as one.
type batched struct{ *formula }

func (d batched) Latency(g models.Group) time.Duration {
	var sum, longest float64
	for _, s := range g.Spans {
		took := float64(d.op[s.Service]) * float64(s.Len()) * (0.97 + 0.03*float64(s.Size))
		sum += took
		longest = max(longest, took)
	}
	return time.Duration(longest + d.part*(sum-longest))
}

func (d batched) OperatorTimes(whole models.Span) []int64 {
	return device.OperatorTimes(d.Latency, whole)
}

func (d batched) Sample(g models.Group, r *rand.Rand) time.Duration {
	return time.Duration(float64(d.Latency(g)) * (1 + d.spread*min(max(r.NormFloat64(), -3), 3)))
}

// TestBadQueriesCostLittle: a service that merges up to 32 queries gets some that its model
// fails on. Neither its other queries nor its neighbour's may pay for more than the few runs
// that find the culprits; without bad queries every one is in time.
func TestBadQueriesCostLittle(t *testing.T) {
	for _, c := range []struct {
		policy          string
		bad             float64
		qps             float64
		good, neighbour float64 // the largest share of them that is lost
	}{
		{"edf", 0.004, 6000, 0.02, 0.02},
		{"abacus", 0.008, 6000, 0.06, 0.02},
		{"overlap", 0.02, 4000, 0.08, 0.04},
	} {
		for seed := range uint64(3) {
			sc := Scenario{
				Device: batched{newFormula(0.5, 0.02, 100*time.Microsecond, 200*time.Microsecond)},
				Policy: c.policy, Plan: true, Queries: 20_000, Seed: seed, Arrivals: Arrivals{Process: Poisson, QPS: c.qps + 100},
				Services: []Service{
					{Name: "a", Target: 50 * ms, MaxBatch: 32, Share: c.qps},
					{Name: "b", Target: 50 * ms, MaxBatch: 1, Share: 100},
				},
			}
			var lost [2]mean
			sc.Observer.Answer = func(a *Answer) {
				if a.Ended.Reason != overlap.ReasonModelFailed {
					lost[a.Query.Service].add(1)
					if a.InTime {
						lost[a.Query.Service].sum--
					}
				}
			}
			if r := run(t, sc); r.Violations > 0.001 {
				t.Fatalf("%s, without bad queries: %.1f %% are lost", c.policy, 100*r.Violations)
			}
			lost = [2]mean{}
			sc.Faults.Bad = c.bad
			run(t, sc)
			t.Logf("%s with %.1f %% bad: of the others %.1f %% are lost, of the neighbour's %.1f %%", c.policy, 100*c.bad, 100*lost[0].value(), 100*lost[1].value())
			if lost[0].value() > c.good || lost[1].value() > c.neighbour {
				t.Errorf("%s with %.1f %% bad queries: want at most %.0f and %.0f %% lost", c.policy, 100*c.bad, 100*c.good, 100*c.neighbour)
			}
		}
	}
}
