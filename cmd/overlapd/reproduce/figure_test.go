package reproduce

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/stats"
)

func TestDeviation(t *testing.T) {
	for _, c := range []struct {
		list []float64
		want float64
	}{{nil, 0}, {[]float64{5}, 0}, {[]float64{1, 3}, math.Sqrt2}, {[]float64{2, 2, 2}, 0}, {[]float64{1, 2, 3, 4}, math.Sqrt(5.0 / 3)}} {
		if got := stats.Deviation(c.list); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v spreads %v, want %v", c.list, got, c.want)
		}
	}
	if meanOf(nil) != nil || *meanOf([]float64{1, 2}) != 1.5 {
		t.Error("the mean is another")
	}
	if got := present([]float64{1}, nil); len(got) != 1 {
		t.Errorf("nothing was added to %v", got)
	}
}

// TestChange of made-up numbers: half as much is 50 % less, twice as much 100 %
// more, and where nothing was there is no percentage.
func TestChange(t *testing.T) {
	for _, c := range []struct {
		a, b float64
		more bool
		want float64
	}{{1, 2, false, 50}, {2, 1, false, -100}, {2, 1, true, 100}, {1, 2, true, -50}, {3, 3, false, 0}, {0, 3, false, 100}} {
		if got := change(rounded(c.a), rounded(c.b), c.more); got == nil || *got != c.want {
			t.Errorf("%v against %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
	if change(nil, rounded(1), true) != nil || change(rounded(1), nil, true) != nil {
		t.Error("what is not there has a change")
	}
}

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

// TestRoundedKeepsSixDigits of any number, and is what it was when rounded
// again.
func TestRoundedKeepsSixDigits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(-1e9, 1e9).Draw(t, "v")
		if math.Abs(v) < 1e-9 {
			t.Skip("too small for the powers of ten that are used")
		}
		r := rounded(v)
		if r == nil || math.Abs(*r-v) > 6e-6*math.Abs(v) {
			t.Fatalf("%v becomes %v", v, r)
		}
		if again := rounded(*r); *again != *r {
			t.Fatalf("%v becomes %v, then %v", v, *r, *again)
		}
	})
}
