package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/synthetic"
	"github.com/overlapd/overlapd/models"
)

// plain serves queries one at a time as in a textbook, in thirty lines that share nothing
// with the scheduler. The least of the queued queries by some order goes first, and a query
// past its deadline is dropped. plain returns how many were late or dropped.
func plain(queries []Query, alone []time.Duration, target time.Duration, before func(a, b int) bool) (violations int) {
	var waiting []int
	now, next := time.Duration(0), 0
	for next < len(queries) || len(waiting) > 0 {
		for next < len(queries) && queries[next].At <= now {
			waiting = append(waiting, next)
			next++
		}
		best, left := -1, waiting[:0]
		for _, q := range waiting {
			if now > queries[q].At+target {
				violations++
				continue
			}
			if left = append(left, q); best < 0 || before(q, left[best]) {
				best = len(left) - 1
			}
		}
		waiting = left
		if best < 0 {
			if next < len(queries) {
				now = queries[next].At
			}
			continue
		}
		q := waiting[best]
		waiting = append(waiting[:best], waiting[best+1:]...)
		if now += alone[q]; now > queries[q].At+target {
			violations++
		}
	}
	return violations
}

// The sequential policies violate as many targets as a plain simulation of the same
// queries says, to the query: shortest job first is over all queries that wait, not over
// the first of each service, and by what each takes alone.
func TestSequentialPoliciesAreTheTextbooks(t *testing.T) {
	profile := synthetic.Device()
	profile.Spread = device.Spread{}
	on := modelOf(t, profile)
	for seed := range uint64(10) {
		sc := Scenario{Arrivals: Arrivals{Process: Poisson, QPS: 260}, Queries: 400, Seed: seed, Device: on, Plan: seed%2 == 0}
		const target = 90 * time.Millisecond
		for _, name := range []string{"resnet50", "resnet152"} {
			sc.Services = append(sc.Services, Service{Name: name, Target: target, MaxBatch: 1, Sizes: []int{2, 4, 8, 16}})
		}
		queries, err := sc.Submissions()
		if err != nil {
			t.Fatal(err)
		}
		alone := make([]time.Duration, len(queries))
		for i, q := range queries {
			at := on.Index(sc.Services[q.Service].Name)
			alone[i] = on.Latency(models.Group{Spans: []models.Span{{Service: models.ServiceID(at), End: on.Models()[at].Operators, Size: q.Size}}})
		}
		for _, c := range []struct {
			policy, knows string
			before        func(a, b int) bool
		}{
			{"fcfs", KnowsNothing, func(a, b int) bool { return a < b }},
			{"edf", KnowsNothing, func(a, b int) bool { return a < b }}, // of one target
			{"sjf", KnowsOrder, func(a, b int) bool { return alone[a] < alone[b] }},
		} {
			sc.Policy, sc.Knows = c.policy, c.knows
			r, err := Run(sc)
			if err != nil {
				t.Fatal(err)
			}
			want := plain(queries, alone, target, c.before)
			if got := int(r.Violations*float64(len(queries)) + 0.5); got != want {
				t.Errorf("seed %d, %s: %d violations, a plain simulation has %d", seed, c.policy, got, want)
			}
			if want == 0 || want == len(queries) {
				t.Errorf("seed %d, %s: %d of %d queries violate, which proves nothing", seed, c.policy, want, len(queries))
			}
		}
	}
}

// What overlap is compared with does one thing less than it: edf-shedding sheds load, and
// runs one batch at a time; overlap-whole runs several, none of which is cut.
func TestPoliciesWithoutOneRule(t *testing.T) {
	violations := map[string]float64{}
	for _, policy := range []string{"edf", "edf-shedding", "overlap", "overlap-whole"} {
		sc := Scenario{
			Arrivals: Arrivals{Process: Poisson, QPS: 700}, Queries: 1000, Seed: 1, Policy: policy,
			Device: modelOf(t, synthetic.Device()), Predictor: synthetic.Predictor(),
			Services: []Service{
				{Name: "resnet50", Target: 50 * ms, Sizes: []int{2, 4, 8, 16}, MaxBatch: 32},
				{Name: "inception_v3", Target: 100 * ms, Sizes: []int{2, 4, 8, 16}, MaxBatch: 32},
			},
		}
		cut, several := false, false
		sc.Observer.Round = func(r *Round) {
			several = several || len(r.Spans) > 1
			for _, s := range r.Spans {
				m, _ := sc.model(&sc.Services[s.Service])
				cut = cut || s.Start > 0 || s.End < sc.Device.Models()[m].Operators
			}
		}
		violations[policy] = run(t, sc).Violations
		if want := policy == "overlap"; cut != want {
			t.Errorf("%s cuts models: %v", policy, cut)
		}
		if want := strings.HasPrefix(policy, "overlap"); several != want {
			t.Errorf("%s runs several batches at a time: %v", policy, several)
		}
	}
	if v := violations; v["edf-shedding"] >= v["edf"] || v["overlap"] >= v["edf-shedding"] {
		t.Errorf("violations %v", v)
	}
}
