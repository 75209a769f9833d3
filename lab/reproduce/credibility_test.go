package reproduce

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/training"
)

func TestSolo(t *testing.T) {
	d := fixed{[]string{"resnet50", "bert"}}
	if got := solo(d, "bert", 2, 8); got != 8*time.Millisecond {
		t.Errorf("%v", got)
	}
	if got := solo(d, "vgg16", 2, 8); got != 0 {
		t.Errorf("an unknown model takes %v", got)
	}
	deploy := &deployment{models: []string{"resnet50", "bert"}, sizes: [][]int{{1}, {2}}, seqLens: []int{8, 16}}
	if got := meanSolo(d, deploy); got != 6*time.Millisecond {
		t.Errorf("mean %v", got)
	}
}

func TestTrust(t *testing.T) {
	row := func(micros float64, spans ...models.Span) training.Row {
		return training.Row{Group: models.Group{Spans: spans}, Median: micros}
	}
	// The dataset has its models in another order than the device.
	whole := models.Span{Service: 1, End: fixedOperators, Size: 1}
	half := models.Span{Service: 0, End: 2, Size: 1}
	s := &stock{
		name: "x",
		half: &training.Dataset{Models: []training.Model{{Name: "bert", Operators: 4}, {Name: "resnet50", Operators: 4}}, Rows: []training.Row{
			row(4000, whole), row(5000, whole), row(3200, half, whole), row(4000, half, whole),
		}},
		solo: []training.SoloTime{{Model: "resnet50", Size: 1, Micros: 2000}, {Model: "vgg16", Size: 1, Micros: 1}},
	}
	got := trust{name: "x"}
	got.compare(fixed{[]string{"resnet50", "bert"}}, s)
	if len(got.alone) != 2 || math.Abs(stats.Mean(got.alone)-10) > 1e-9 || len(got.several) != 2 || math.Abs(stats.Mean(got.several)-12.5) > 1e-9 {
		t.Errorf("%+v, want 10 %% alone and 12.5 %% with others", got)
	}
	if !slices.Equal(got.solo, []float64{100}) {
		t.Errorf("solo times are off by %v, want 100 %%", got.solo)
	}
}

// madeRuns are runs of two pairs with these violations.
func madeRuns(list map[string][2]float64) *reproduction {
	r := &reproduction{data: &data{authors: map[float64]authorsResults{}}, stocks: map[stockKey]*stock{{pairsStock, 0}: {}}}
	for _, load := range loads {
		of := authorsResults{}
		r.data.authors[load] = of
		for i, models := range [][]string{{"resnet50", "bert"}, {"vgg16", "vgg19"}} {
			d := &deployment{models: models, load: load}
			of[d.label()] = map[string]measured{}
			for _, v := range variants {
				if values, ok := list[v.name]; ok {
					result := new(sim.Result)
					result.Violations, result.Answered, result.Queries = values[i], 50, 100
					r.pairRuns = append(r.pairRuns, &served{d, v.name, []*sim.Result{result}})
					of[d.label()][v.name] = measured{violations: 0.5, tail: 1, answered: 500}
				}
			}
		}
	}
	return r
}

func drawOf(r *reproduction, s *series) *figure { return planPairs(s)(r)()[0] }

func TestCredibility(t *testing.T) {
	made := madeRuns(map[string][2]float64{"fcfs-authors": {0.4, 0.7}})
	f := credibility(drawOf(made, &pairViolations), []*trust{{name: "pairs", alone: []float64{1, 1}, several: []float64{1, 3}}})
	for _, c := range []struct {
		name, policy string
		qps          float64
		want         float64
	}{
		{"error of the device, one span", "pairs", 0, 1},
		{"error of the device, several spans", "pairs", 0, 2},
		{"violations, mean over the pairs", "fcfs-authors", 100, 55},
		{"violations, ours less the authors'", "fcfs-authors", 100, 5},
		{"violations, distance in a pair", "fcfs-authors", 50, 15},
	} {
		if row := f.find(c.name, c.qps, c.policy); row == nil || math.Abs(*row.Ours-c.want) > 1e-6 {
			t.Errorf("%s: %+v, want %v", c.name, row, c.want)
		}
	}
	if f.find("error of the device, given solo times", 0, "pairs") != nil {
		t.Error("solo times were compared, and none was given")
	}
	if f.find("violations, mean over the pairs", 100, "abacus-authors") != nil {
		t.Error("abacus was compared, and never ran")
	}
	if len(f.charts()) != 0 {
		t.Error("a chart of many units")
	}
}

func TestWorse(t *testing.T) {
	for want, list := range map[string]map[string][2]float64{
		"Ours was not compared": {"edf": {0.1, 0.1}},
		"No pair is worse":      {"edf-unmerged": {0, 0}, "edf": {0.1, 0.1}, "clockwork": {0.2, 0.1}, "overlap": {0.1, 0.05}},
		"VGG16+VGG19 at 100 under overlap: 9.00 %, clockwork 8.00 %": {"edf": {0.1, 0.1}, "clockwork": {0.2, 0.08}, "overlap": {0.1, 0.09}},
	} {
		if got := drawOf(madeRuns(list), &pairViolations).worse(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
