package bound

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/baselines"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// formula is a device on which an operator takes a half and half of the batch
// size, in milliseconds, and a group its longest span and a part of the others.
type formula struct{ part float64 }

func (formula) Models() (list []device.ModelInfo) {
	for _, name := range []string{"a", "b", "c"} {
		list = append(list, device.ModelInfo{Name: name, Operators: 10, Sizes: []int{1, 4, 8}, SeqLens: []int{0}})
	}
	return list
}

func (f formula) Latency(g models.Group) time.Duration {
	sum, longest := 0.0, 0.0
	for _, s := range g.Spans {
		took := float64(s.Len()) * (0.5 + 0.5*float64(s.Size))
		sum, longest = sum+took, max(longest, took)
	}
	return time.Duration((longest + f.part*(sum-longest)) * float64(time.Millisecond))
}

func (f formula) OperatorTimes(whole models.Span) []int64 {
	return device.OperatorTimes(f.Latency, whole)
}

func (f formula) Sample(g models.Group, _ *rand.Rand) time.Duration { return f.Latency(g) }

func scenario(seed uint64, queries int, qps float64) sim.Scenario {
	return sim.Scenario{
		Device: formula{0.5}, Seed: seed, Queries: queries, Arrivals: sim.Arrivals{Process: sim.Poisson, QPS: qps}, Policy: "edf", Scheduler: baselines.New,
		Services: []sim.Service{
			{Name: "a", Target: 60 * time.Millisecond, Sizes: []int{1, 4}, MaxBatch: 8},
			{Name: "b", Target: 90 * time.Millisecond, Sizes: []int{1, 2}},
		},
	}
}

// policyNames lists all policies.
func policyNames() (names []string) {
	for _, p := range slices.Concat(overlap.Policies(), overlap.Comparisons()) {
		names = append(names, p.Name)
	}
	for _, p := range baselines.Policies() {
		names = append(names, p.Name)
	}
	return names
}

// TestNoPolicyBeatsTheBound tries all of them, on few queries and on more.
func TestNoPolicyBeatsTheBound(t *testing.T) {
	for seed := range uint64(40) {
		sc := scenario(seed, []int{8, 12, 150}[seed%3], []float64{60, 120, 300}[seed/3%3])
		sc.Devices = 1 + int(seed%2)
		b, err := Of(sc)
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range policyNames() {
			if sc.Policy = policy; policy == "static" {
				continue // no service has a share
			}
			r, err := sim.Run(sc)
			if err != nil {
				t.Fatal(err)
			}
			if in := r.Answered - r.Late; in > b.InTime || r.Violations < b.Violations-1e-9 {
				t.Errorf("seed %d: %s answers %d in time, the bound is %d", seed, policy, in, b.InTime)
			}
		}
	}
}

// TestGain finds that of two equal spans, and that merging makes work less.
func TestGain(t *testing.T) {
	sc := scenario(1, 10, 1)
	c := newCosts(&sc)
	c.grow(0, nil, 0, 0)
	if most := 2 / 1.5; c.gain > most+1e-9 || c.gain < 0.98*most {
		t.Errorf("gain %v, want %v", c.gain, most)
	}
	share, fastest := c.of(&sim.Query{Service: 0, Size: 1})
	if want := 45 * time.Millisecond / 8; share != want || fastest != 10*time.Millisecond {
		t.Errorf("a query of 8 in a batch counts %v of at least %v, want %v", share, fastest, want)
	}
	if share, _ := c.of(&sim.Query{Service: 1, Size: 1}); share != 10*time.Millisecond {
		t.Errorf("a query that is not merged counts %v", share)
	}
}

// TestImpossibleAndExcused counts a query that nothing could answer in time,
// and not one whose client leaves.
func TestImpossibleAndExcused(t *testing.T) {
	sc := scenario(1, 0, 1)
	sc.Given = []sim.Query{{Size: 1}, {At: time.Second, Size: 8}, {At: 2 * time.Second, Size: 1, Leaves: 2*time.Second + 1}, {At: 3 * time.Second, Service: 1, Size: 1}}
	sc.Services[0].Target = 40 * time.Millisecond
	b, err := Of(sc)
	if err != nil || b.InTime != 2 || math.Abs(b.Violations-0.25) > 1e-9 {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestBoundFaults(t *testing.T) {
	if _, err := Of(scenario(1, MaxQueries+1, 100)); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many queries: got %v", err)
	}
	sc := scenario(1, 10, 100)
	sc.Services[1].Model = "x"
	if _, err := Of(sc); !errors.Is(err, sim.ErrUnknownModel) {
		t.Errorf("unknown model: got %v", err)
	}
}

// TestShapes has each size with each sequence length once, none below the
// smallest query, and of many some that lie evenly.
func TestShapes(t *testing.T) {
	s := &sim.Service{Sizes: []int{4, 8, 4}, SeqLens: []int{64, 8, 8}, MaxBatch: 16}
	got := shapesOf(s, []int{1, 4, 8, 16, 32})
	want := []shape{{4, 8}, {8, 8}, {16, 8}, {4, 64}, {8, 64}, {16, 64}}
	if !slices.Equal(got, want) {
		t.Errorf("shapes %v, want %v", got, want)
	}
	if got := shapesOf(&sim.Service{}, []int{1, 4}); !slices.Equal(got, []shape{{1, 0}}) {
		t.Errorf("a service that says nothing has the shapes %v", got)
	}
	if got := stats.Thin([]int{1, 2, 3, 4, 5}, 3); !slices.Equal(got, []int{1, 3, 5}) {
		t.Errorf("thinned to %v", got)
	}
}
