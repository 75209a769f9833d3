package sim

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/device/synthetic"
	"github.com/overlapd/overlapd/models"
)

// constant is a device on which batches up to a size take what one of that size takes, and
// none is a change: whoever serves fills all up to it.
type constant struct {
	*device.Model
	size int
	on   models.Group
}

func (c *constant) full(g models.Group) models.Group {
	c.on = models.Group{Spans: append(c.on.Spans[:0], g.Spans...), Idle: g.Idle}
	for i := range c.on.Spans {
		s := &c.on.Spans[i]
		s.Size, s.Resized = max(s.Size, c.size), false
	}
	return c.on
}

func (c *constant) Latency(g models.Group) time.Duration { return c.Model.Latency(c.full(g)) }
func (c *constant) Sample(g models.Group, r *rand.Rand) time.Duration {
	return c.Model.Sample(c.full(g), r)
}

func (c *constant) OperatorTimes(model, size, seqLen int) []int64 {
	return c.Model.OperatorTimes(model, max(size, c.size), seqLen)
}

// resizing serves three services on the synthetic GPU, on which a change of a batch size
// costs 40 ms. It returns the percentage of violations of all queries and of those that
// came when it could have learned that, and counts spans by their batch sizes.
func resizing(t testing.TB, seed uint64, qps float64, maxBatch, fixed int, sizes map[int]int) (all, later float64) {
	t.Helper()
	p := synthetic.Device()
	p.ChangeMillis = 40
	d := modelOf(t, p)
	sc := Scenario{
		Device: d, DeviceName: p.Device, Predictor: synthetic.Predictor(), Policy: "overlap", Seed: seed, Queries: int(qps * 10),
		Arrivals: Arrivals{Process: Poisson, QPS: qps},
	}
	if fixed > 0 {
		sc.Device = &constant{Model: d, size: fixed}
	}
	for _, name := range []string{"resnet50", "vgg19", "inception_v3"} {
		sc.Services = append(sc.Services, Service{Name: name, Target: 100 * ms, MaxBatch: max(maxBatch, fixed), Sizes: []int{1}})
	}
	bad, count := 0, 0
	sc.Observer.Answer = func(a *Answer) {
		if a.Query.At >= learning {
			count++
			if !a.InTime {
				bad++
			}
		}
	}
	sc.Observer.Round = func(r *Round) {
		for _, s := range r.Spans {
			sizes[s.Size]++
		}
	}
	return 100 * run(t, sc).Violations, 100 * float64(bad) / float64(count)
}

// learning is how long finding out takes in these scenarios.
const learning = 5 * time.Second

// TestBatchSizesThatChange: where a change costs 40 ms, what the scheduler finds out lets
// it do as well as the best batch size that never changes, once it has found out. With
// OVERLAPD_TEST_TABLE=1 it logs the table of docs/benchmarks.
func TestBatchSizesThatChange(t *testing.T) {
	loads, fixed, seeds := []float64{300, 1500}, []int{1, 8}, 1
	if os.Getenv("OVERLAPD_TEST_TABLE") != "" {
		loads, fixed, seeds = []float64{100, 300, 600, 1000, 1500, 2500, 4000}, []int{1, 2, 4, 8, 16, 32}, 5
	}
	t.Log("| queries/s | violations | from 5 s |", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(fixed)), " | "), "[]"), "| sizes that ran most |")
	t.Log(strings.Repeat("|--:", 3+len(fixed)) + "|---|")
	for _, qps := range loads {
		mean := func(maxBatch, fixed int, sizes map[int]int) (all, later float64) {
			for seed := range seeds {
				a, l := resizing(t, uint64(seed+1), qps, maxBatch, fixed, sizes)
				all, later = all+a/float64(seeds), later+l/float64(seeds)
			}
			return all, later
		}
		sizes := map[int]int{}
		all, later := mean(32, 0, sizes)
		line, best := fmt.Sprintf("| %4.0f | %5.1f | %5.1f |", qps, all, later), 100.0
		for _, size := range fixed {
			_, v := mean(size, size, map[int]int{})
			line += fmt.Sprintf(" %5.1f |", v)
			best = min(best, v)
		}
		chosen := slices.Collect(maps.Keys(sizes))
		slices.SortFunc(chosen, func(a, b int) int { return sizes[b] - sizes[a] })
		t.Log(line, chosen[:min(len(chosen), 6)], "|")
		if later > best+1 && seeds == 1 {
			t.Errorf("%v queries a second: %.1f %% violations, with the best size that never changes %.1f %%", qps, later, best)
		}
	}
}

// waking returns two services, with a target, on a device that takes 20 ms more for what
// runs after 50 ms without work, which most of the queries come after.
func waking(t *testing.T, policy string, seed uint64, target time.Duration) Scenario {
	p := synthetic.Device()
	p.WakeMillis, p.IdleMillis = 20, 50
	d := modelOf(t, p)
	return Scenario{
		Device: d, DeviceName: p.Device, Predictor: synthetic.Predictor(), Policy: policy, Seed: seed, Queries: 400, Arrivals: Arrivals{Process: Poisson, QPS: 5},
		Services: []Service{{Name: "resnet50", Target: target, Sizes: []int{1}}, {Name: "vgg19", Target: target, Sizes: []int{1}}},
	}
}

// TestPauses: a device that has to wake up is predicted as well after a pause as without
// one, once that was found out.
func TestPauses(t *testing.T) {
	rounds, _ := watch(t, waking(t, "overlap", 1, 100*ms))
	var off [2]float64 // in the first rounds after a long pause, and in the last
	count := 0
	for i := 1; i < len(rounds); i++ {
		r := rounds[i]
		if r.Start-rounds[i-1].End < 100*ms {
			continue
		}
		wrong := math.Abs(float64(r.Predicted.Latency)/float64(r.Took) - 1)
		if i < 4 {
			off[0] = max(off[0], wrong)
		} else if i > len(rounds)/2 {
			off[1] += wrong
			count++
		}
	}
	if off[1] /= float64(count); count < 50 || off[0] < 0.8 || off[1] > 0.05 {
		t.Errorf("predictions are off by %.3f at first and by %.3f in %d rounds later", off[0], off[1], count)
	}
}

// TestWaking: where waking the device takes longer than a target, queries that find it
// asleep are late, but they wake it, so that those which follow soon are in time. At 5
// queries a second 78 of 100 come after a pause of 50 ms.
func TestWaking(t *testing.T) {
	for _, policy := range []string{"overlap", "edf"} {
		for seed := range uint64(3) {
			if late := run(t, waking(t, policy, seed+1, 15*ms)).Violations; late > 0.8 {
				t.Errorf("%s, seed %d: %.3f of the queries are late", policy, seed+1, late)
			}
		}
	}
}
