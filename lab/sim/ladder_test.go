package sim

import (
	"os"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/synthetic"
	"github.com/overlapd/overlapd/models"
)

// ladderless is a device on which services merge queries into batches of any size.
type ladderless struct{ Device }

func (d ladderless) Models() []device.ModelInfo {
	list := slices.Clone(d.Device.Models())
	for i := range list {
		list[i].Ladder = false
	}
	return list
}

// changing returns the violations, in percent, of three services on the synthetic GPU, on
// which a batch of a size off the ladder takes so much longer.
func changing(t testing.TB, seed uint64, qps, millis float64, ladder bool) float64 {
	t.Helper()
	p := synthetic.Device()
	p.ChangeMillis = millis
	sc := Scenario{
		Device: modelOf(t, p), DeviceName: p.Device, Predictor: synthetic.Predictor(), Policy: "overlap", Seed: seed, Queries: int(qps * 10),
		Arrivals: Arrivals{Process: Poisson, QPS: qps},
	}
	if !ladder {
		sc.Device = ladderless{sc.Device}
	}
	sc.Observer.Round = func(r *Round) {
		for _, s := range r.Spans {
			if ladder && millis > 0 && !models.OnLadder(s.Size) {
				t.Errorf("a batch of %d runs", s.Size)
			}
		}
	}
	for _, name := range []string{"resnet50", "vgg19", "inception_v3"} {
		sc.Services = append(sc.Services, Service{Name: name, Target: 100 * ms, MaxBatch: 32, Sizes: []int{1}})
	}
	return 100 * run(t, sc).Violations
}

// TestLadder: where sizes off the ladder cost 40 ms, services that keep to the ladder do
// about as well as if no size cost anything. With OVERLAPD_TEST_TABLE=1 it logs the table of
// docs/benchmarks.
func TestLadder(t *testing.T) {
	loads, seeds := []float64{300, 1500}, 1
	if os.Getenv("OVERLAPD_TEST_TABLE") != "" {
		loads, seeds = []float64{100, 300, 600, 1000, 1500, 2500, 4000}, 5
	}
	t.Log("| queries/s | ladder | any size | any size, were changes free |")
	t.Log("|--:|--:|--:|--:|")
	for _, qps := range loads {
		var ladder, other, free float64
		for seed := range uint64(seeds) {
			ladder += changing(t, seed+1, qps, 40, true) / float64(seeds)
			other += changing(t, seed+1, qps, 40, false) / float64(seeds)
			free += changing(t, seed+1, qps, 0, false) / float64(seeds)
		}
		t.Logf("| %4.0f | %5.1f | %5.1f | %5.1f |", qps, ladder, other, free)
		if seeds == 1 && (ladder > free+0.5 || ladder > other) {
			t.Errorf("%v queries a second: %.1f %% violations, with any size %.1f %%, without changes %.1f %%", qps, ladder, other, free)
		}
	}
}
