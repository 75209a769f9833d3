package reproduce

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/internal/stats"
)

// TestMeansAreOfAllCases, and those of the authors only where they have all.
func TestMeansAreOfAllCases(t *testing.T) {
	f := &figure{Rows: []row{
		{Case: "a", QPS: 50, Policy: "p", Ours: rounded(1), Authors: rounded(2)},
		{Case: "b", QPS: 50, Policy: "p", Ours: rounded(3)},
		{Case: "a", QPS: 100, Policy: "p", Ours: rounded(10), Authors: rounded(20)},
		{Case: "a", QPS: 100, Policy: "q"},
	}}
	f.addMeans(caseMean, stats.Mean)
	if m := f.find(caseMean, 50, "p"); m == nil || *m.Ours != 2 || m.Authors != nil {
		t.Errorf("the authors have one of two: %+v", m)
	}
	if m := f.find(caseMean, 100, "p"); m == nil || *m.Ours != 10 || *m.Authors != 20 {
		t.Errorf("%+v", m)
	}
	if m := f.find(caseMean, 100, "q"); m != nil {
		t.Errorf("the mean of no number is %+v", m)
	}
	if got := f.loads(); !slices.Equal(got, []float64{50, 100}) {
		t.Errorf("loads %v", got)
	}
	if got := f.cases(50); !slices.Equal(got, []string{"a", "b", caseMean}) {
		t.Errorf("cases %v", got)
	}
	if got := f.policies(); !slices.Equal(got, []string{"p", "q"}) {
		t.Errorf("policies %v", got)
	}
}

// TestCompareSkips a policy against itself, and what was not run.
func TestCompareSkips(t *testing.T) {
	f := &figure{Rows: []row{{Case: caseMean, QPS: 50, Policy: "abacus-authors", Ours: rounded(1)}, {Case: caseMean, QPS: 50, Policy: "overlap", Ours: rounded(2)}}}
	says := statement{"7.9", map[string]float64{"overlap": 12, "fcfs-authors": 3}}
	f.compare(caseMean, 50, []string{"abacus-authors", "overlap", "lifo"}, []string{"abacus-authors", "overlap", "fcfs-authors"}, says)
	if len(f.Comparisons) != 2 {
		t.Fatalf("%+v", f.Comparisons)
	}
	first, second := f.Comparisons[0], f.Comparisons[1]
	if first.Case != "mean: abacus-authors against overlap" || *first.Ours != 50 || *first.Paper != 12 || first.Section != "7.9" {
		t.Errorf("%+v", first)
	}
	if second.Paper != nil || second.Section != "" || *second.Ours != -100 {
		t.Errorf("the paper says nothing of ours: %+v", second)
	}
	f.compare(caseMean, 100, []string{"abacus-authors"}, []string{"overlap"}, says)
	if len(f.Comparisons) != 2 {
		t.Errorf("another load is compared: %+v", f.Comparisons)
	}
}
