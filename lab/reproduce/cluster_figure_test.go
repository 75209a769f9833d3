package reproduce

import (
	"strings"
	"testing"

	"github.com/overlapd/overlapd/lab/sim"
)

// TestClusterFigures of made-up runs: every value of every variant at both
// loads, a comparison with Clockwork beside the paper's words, and the scale.
func TestClusterFigures(t *testing.T) {
	var runs []*clusterRun
	for _, load := range clusterLoads {
		for i, v := range among(variants, "clockwork-unmerged", "abacus-authors", "overlap") {
			r := &clusterRun{variant: v, load: load, times: 1, result: new(sim.Result)}
			r.result.ThroughputQPS, r.result.GoodputQPS, r.result.Violations = 100*float64(i+1), 50*float64(i+1), 0.1*float64(i)
			r.result.LatencyMS.P99, r.result.LatencyMS.Mean = 90, 30
			if load == "scaled" {
				r.times = 7
			}
			runs = append(runs, r)
		}
	}
	list := clusterFigures(runs, []float64{600, 1200}, map[string][]int{"resnet101": {1, 2}, "resnet152": pairSizes, "vgg19": pairSizes, "bert": pairSizes})
	if len(list) != 3 {
		t.Fatalf("%d figures", len(list))
	}
	served := list[0]
	for name, want := range map[string]float64{"throughput, as given": 200, "goodput, scaled": 100} {
		if r := served.find(name, 0, "abacus-authors"); r == nil || *r.Ours != want {
			t.Errorf("%s: %+v, want %v", name, r, want)
		}
	}
	if r := figureNamed(t, list, "22, violations").find("scaled", 0, "overlap"); r == nil || *r.Ours != 0.2 {
		t.Errorf("violations %+v", r)
	}
	if r := figureNamed(t, list, "22, latency").find("99th percentile, scaled", 0, "overlap"); r == nil || *r.Ours != 90 {
		t.Errorf("latency %+v", r)
	}
	if len(served.Comparisons) != 4 {
		t.Fatalf("%+v", served.Comparisons)
	}
	if c := served.Comparisons[0]; c.Case != "throughput, scaled: abacus-authors against clockwork-unmerged" || *c.Ours != 100 || *c.Paper != 17.8 {
		t.Errorf("%+v", c)
	}
	if c := served.Comparisons[2]; c.Paper != nil {
		t.Errorf("the paper says nothing of goodput: %+v", c)
	}
	for _, want := range []string{"2 minutes", "15 queries per second", "multiplies it by 7", "but for Res101 [1 2]", "whose scheduler decides for all devices"} {
		if !strings.Contains(strings.Join(served.Notes, " "), want) {
			t.Errorf("%q is not among the notes %q", want, served.Notes)
		}
	}
}

// TestClusterTakesTheBetterWay, and asks for more than the devices do one query
// after another where the load is scaled.
func TestClusterTakesTheBetterWay(t *testing.T) {
	r := runOf(fewOptions(), stockOf(quadModels), "edf-authors", "edf-unmerged", "clockwork-unmerged")
	figures := planCluster(r)
	if len(r.plan.jobs) != 4 {
		t.Fatalf("%d jobs, want two for each load and none for edf", len(r.plan.jobs))
	}
	if err := serve(t, r, quadDevice); err != nil {
		t.Fatal(err)
	}
	list := figures()
	rates := figureNamed(t, list, "22, violations")
	given, scaled := rates.find("as given", 0, "clockwork-unmerged"), rates.find("scaled", 0, "clockwork-unmerged")
	if given == nil || scaled == nil || *given.Ours > 0.01 || *scaled.Ours < 0.02 {
		t.Errorf("violations as given %v, scaled %v", *given.Ours, *scaled.Ours)
	}
	goodputs := list[0]
	if a, b := goodputs.find("goodput, scaled", 0, "clockwork-unmerged"), goodputs.find("goodput, scaled", 0, "edf-unmerged"); *a.Ours < 0.95**b.Ours {
		t.Errorf("clockwork serves %v in time, fcfs %v: its devices are idle", *a.Ours, *b.Ours)
	}
}
