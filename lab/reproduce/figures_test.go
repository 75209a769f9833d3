package reproduce

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/lab/sim"
)

// fewOptions serve few queries, twice.
func fewOptions() *Options {
	o := DefaultOptions()
	o.Seeds, o.Queries = 2, 60
	return &o
}

func figureNamed(t *testing.T, list []*figure, name string) *figure {
	t.Helper()
	i := slices.IndexFunc(list, func(f *figure) bool { return f.Figure == name })
	if i < 0 {
		t.Fatalf("figure %s is missing", name)
	}
	return list[i]
}

// TestSamplesHaveSeedsInTurn, and give the mean and the standard deviation over
// them.
func TestSamplesHaveSeedsInTurn(t *testing.T) {
	o, s := fewOptions(), stockOf([]string{"resnet50", "bert"})
	o.Seed = 7
	run := runOf(o, s, "fcfs-authors")
	deploys := s.pairs(fullLoad)
	got := run.serve("x", 3, run.variants, trial{stock: s}, deploys)[0]
	if err := serve(t, run, large{fixed{deploys[0].models}}); err != nil {
		t.Fatal(err)
	}
	for i, r := range got.results {
		if r.Seed != 7+uint64(i) || r.Queries != o.Queries || r.Policy != "fcfs" {
			t.Errorf("run %d has seed %d and %d queries under %s", i, r.Seed, r.Queries, r.Policy)
		}
	}
	a, b := new(sim.Result), new(sim.Result)
	a.Violations, a.Answered, a.Queries, a.P99OverTarget, a.ThroughputQPS, a.GoodputQPS = 0.1, 90, 100, 1, 5, 4
	b.Violations, b.Answered, b.Queries, b.P99OverTarget, b.ThroughputQPS, b.GoodputQPS = 0.3, 70, 100, 2, 7, 6
	made := &served{results: []*sim.Result{a, b}}
	for name, c := range map[string]struct {
		value       func(*sim.Result) float64
		mid, spread float64
	}{
		"violations": {violations, 0.2, 0.141421}, "tail": {tail, 1.5, 0.707107}, "answered": {answeredOf1000, 800, 141.421},
		"throughput": {throughput, 6, 1.41421}, "goodput": {goodput, 5, 1.41421},
	} {
		if mid, spread := made.of(c.value); *mid != c.mid || math.Abs(*spread-c.spread) > 1e-9 {
			t.Errorf("%s: %v ± %v, want %v ± %v", name, *mid, *spread, c.mid, c.spread)
		}
	}
	if got := answeredOf1000(&sim.Result{}); got != 0 {
		t.Errorf("of no queries %v are answered", got)
	}
}

// TestPairFigureOfRuns serves a pair, once with a load that the device bears.
func TestPairFigureOfRuns(t *testing.T) {
	r := runOf(fewOptions(), stockOf([]string{"resnet50", "bert"}), "fcfs-authors", "overlap-unmerged")
	r.data.authors = map[float64]authorsResults{fullLoad: {"Res50+Bert": {"fcfs-authors": {tail: 1.5, violations: 0.25, answered: 700}}}}
	draw, drawAnswered := planViolations(r), planPairs(&pairAnswered)(r)
	jobs := len(r.plan.jobs)
	planPairs(&pairTails)(r)
	if len(r.plan.jobs) != jobs {
		t.Error("what several figures show is served for each of them")
	}
	if err := serve(t, r, large{fixed{[]string{"resnet50", "bert"}}}); err != nil {
		t.Fatal(err)
	}
	list := append(draw(), drawAnswered()...)
	f := figureNamed(t, list, "15")
	row, mean := f.find("Res50+Bert", fullLoad, "fcfs-authors"), f.find(caseMean, fullLoad, "fcfs-authors")
	if row == nil || mean == nil || *row.Ours != *mean.Ours || *row.Authors != 0.25 || *mean.Authors != 0.25 {
		t.Errorf("the only pair %+v, the mean %+v", row, mean)
	}
	for _, series := range []string{boundMerged, boundUnmerged} {
		for _, load := range []float64{calmLoad, fullLoad} {
			if b := f.find(caseMean, load, series); b == nil || *b.Ours < 0 || *b.Ours > *f.find(caseMean, load, "overlap-unmerged").Ours+0.02 {
				t.Errorf("%s at %v is %v, overlap has %v", series, load, *b.Ours, *f.find(caseMean, load, "overlap-unmerged").Ours)
			}
		}
	}
	if !slices.ContainsFunc(f.Notes, func(n string) bool { return strings.Contains(n, "They are of the first seed") }) {
		t.Errorf("notes %q do not tell of which seed the bounds are", f.Notes)
	}
	if g := figureNamed(t, list, "17").find("Res50+Bert", fullLoad, "fcfs-authors"); *g.Authors != 700 {
		t.Errorf("of a quarter that violates follow %v of 1,000 in time", *g.Authors)
	}
}

// TestManyFigures has the mean of the triplets, the quadruplet by itself, and
// comparisons with the paper's words for both.
func TestManyFigures(t *testing.T) {
	r := runOf(fewOptions(), stockOf(quadModels), "fcfs-authors", "abacus-authors")
	draw, drawAnswered := planMany(&manyTails, &manyViolations)(r), planMany(&manyAnswered)(r)
	if err := serve(t, r, quadDevice); err != nil {
		t.Fatal(err)
	}
	list := append(draw(), drawAnswered()...)
	tails, rates := figureNamed(t, list, "18"), figureNamed(t, list, "18, violations")
	answered := figureNamed(t, list, "19")
	for _, f := range list {
		for _, load := range []float64{calmLoad, fullLoad} {
			var sum float64
			triplets := 0
			for _, c := range f.cases(load) {
				if strings.Count(c, "+") == 2 {
					sum += *f.find(c, load, "fcfs-authors").Ours
					triplets++
				}
			}
			if m := f.find(caseTriplets, load, "fcfs-authors"); triplets != 4 || m == nil || math.Abs(*m.Ours-sum/4) > 1e-5*max(sum, 1) {
				t.Errorf("figure %s at %v: %d triplets with the sum %v, mean %+v", f.Figure, load, triplets, sum, m)
			}
			if f.find(caseQuadruplet, load, "abacus-authors") == nil {
				t.Errorf("figure %s at %v lacks the quadruplet", f.Figure, load)
			}
		}
	}
	if tails.level != 1 || !rates.percent || rates.level != 0 || answered.percent {
		t.Error("the figures are drawn as others")
	}
	says := map[string]float64{}
	for _, c := range tails.Comparisons {
		says[c.Case] = *c.Paper
	}
	if len(says) != 2 || says["quadruplet: abacus-authors against fcfs-authors"] != 16.1 || says["mean of triplets: abacus-authors against fcfs-authors"] != 21.3 {
		t.Errorf("the paper says %v", says)
	}
	if n := len(rates.Comparisons); n != 2 {
		t.Errorf("%d comparisons of violations, want two, since overlap did not run", n)
	}
}

// TestHighestFigure finds the same load for policies that do the same, and compares ours
// with what merges as it does.
func TestHighestFigure(t *testing.T) {
	r := runOf(fewOptions(), stockOf([]string{"resnet50", "bert"}, quadModels), "fcfs-authors", "edf-unmerged", "clockwork-unmerged", "edf", "overlap", "overlap-unmerged")
	drawn := planHighest(r)
	if err := serve(t, r, large{fixed{append([]string{"resnet50"}, quadModels...)}}); err != nil {
		t.Fatal(err)
	}
	list := drawn()
	borne, f := list[0], list[1]
	of := func(policy string) float64 { return *f.find("Res50+Bert", 0, policy).Ours }
	if of("clockwork-unmerged") != of("edf-unmerged") || of("edf") < leastQPS || of("overlap") < of("edf") || of("overlap") > mostQPS {
		t.Errorf("clockwork bears %v, edf %v and merged %v, overlap %v", of("clockwork-unmerged"), of("edf-unmerged"), of("edf"), of("overlap"))
	}
	if f.find("Res50+Bert", 0, "fcfs-authors") != nil {
		t.Error("a policy that only stands beside the authors' runs was searched")
	}
	var compared []string
	for _, row := range borne.Rows {
		compared = append(compared, row.Policy)
	}
	want := []string{"overlap-unmerged over edf-unmerged", "overlap-unmerged over clockwork-unmerged", "overlap over edf"}
	if !slices.Equal(compared, slices.Concat(want, want)) { // of the pairs, then of the quadruplet
		t.Errorf("compared %q", compared)
	}
	if got, want := *borne.Rows[2].Ours, *f.find(caseMean, 0, "overlap").Ours / *f.find(caseMean, 0, "edf").Ours; math.Abs(got/want-1) > 1e-4 {
		t.Errorf("overlap bears %v times what edf does, want %v", got, want)
	}
}

// TestWaysFigure has what the paper says beside the calls with four ways, and
// tells times apart from the figure, which must be the same in every run.
func TestWaysFigure(t *testing.T) {
	run := runOf(fewOptions(), stockOf(quadModels), "fcfs-authors", "abacus-authors")
	draw := planWays(run)
	if len(run.plan.jobs) != len(searchWays) {
		t.Errorf("%d jobs, want one for each way of abacus", len(run.plan.jobs))
	}
	f := draw()[0] // nothing was run: no number, no division by zero
	if r := f.find("calls, 4 ways", 0, "abacus-authors"); r == nil || *r.Ours != 0 || r.Paper == nil || *r.Paper != 3 {
		t.Errorf("%+v", r)
	}
	if r := f.find("groups asked about, 4 ways", 0, "abacus-authors"); r == nil || r.Paper != nil {
		t.Errorf("%+v", r)
	}
	if times := run.result.timing; len(times.Decisions) != len(searchWays) || times.Decisions[0].Policy != "abacus-authors" || times.Decisions[0].Ways != 1 {
		t.Errorf("%+v", times)
	}
}
