package reproduce

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func textOf(t *testing.T, r *Result) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTextOfManyRows shows the means of a load that has many rows, and all of
// one that has few.
func TestTextOfManyRows(t *testing.T) {
	f := &Figure{Figure: "15", Title: "x", Unit: "violations", percent: true, decimals: 3}
	add := func(qps float64, cases int) {
		for i := range cases {
			for _, policy := range []string{"fcfs", "edf"} {
				f.Rows = append(f.Rows, Row{Case: fmt.Sprintf("case %d", i), QPS: qps, Policy: policy, Ours: rounded(0.125)})
			}
		}
		f.Rows = append(f.Rows, Row{Case: caseMean, QPS: qps, Policy: "fcfs", Ours: rounded(0.5), Authors: rounded(0.25)})
	}
	add(50, maxTextRows)
	add(100, 2)
	text := textOf(t, &Result{Figures: []*Figure{f}})
	if strings.Contains(text, "case 3") || strings.Count(text, "mean") != 2 {
		t.Errorf("many rows are all shown:\n%s", text)
	}
	for _, want := range []string{"figure 15: x (emulated)", "case 1  100     edf  12.5 %      -        -", "mean  100    fcfs  50.0 %      -   25.0 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "better by") {
		t.Errorf("there is nothing to compare:\n%s", text)
	}
}

func TestTextOfComparisonsAndNotes(t *testing.T) {
	f := &Figure{Figure: "highest-load", Title: "x", Notes: []string{"first", "second"}, Comparisons: []Row{
		{Case: "mean: a against b", Ours: rounded(12.34), Paper: rounded(20)},
	}}
	text := textOf(t, &Result{Label: "Emulated: x", Figures: []*Figure{f}, Missing: []*Missing{{"22", "a cluster", "there is no file"}, {"20 and 21", "MIG", "not measured"}}})
	last := -1
	for _, want := range []string{"Emulated: x\n", "\nhighest-load: x (emulated)\n", "12.3 %  20.0 %        -", "  first\n  second\n", "\nfigure 22: a cluster\n  there is no file\n", "\nfigures 20 and 21: MIG\n"} {
		at := strings.Index(text, want)
		if at < 0 || at < last {
			t.Errorf("%q is missing, or not in its place, in\n%s", want, text)
		}
		last = at
	}
}

func TestNumbersAsText(t *testing.T) {
	v := rounded(0.1234)
	for _, c := range []struct {
		f    Figure
		want string
	}{
		{Figure{decimals: 2}, "0.12"}, {Figure{decimals: 0}, "0"}, {Figure{percent: true, decimals: 4}, "12.34 %"}, {Figure{percent: true}, "12 %"},
	} {
		if got := c.f.number(v); got != c.want {
			t.Errorf("%+v writes %q, want %q", c.f, got, c.want)
		}
		if got := c.f.number(nil); got != absent {
			t.Errorf("%+v writes %q where there is no number", c.f, got)
		}
	}
	if load(0) != absent || load(12.5) != "12.5" || percentage(nil) != absent || percentage(rounded(-3)) != "-3.0 %" {
		t.Error("loads or percentages are written otherwise")
	}
	for name, want := range map[string]string{"14": "figure 14", "17, goodput": "figure 17, goodput", "20 and 21": "figures 20 and 21", "credibility": "credibility", "": ""} {
		if got := figureName(name); got != want {
			t.Errorf("%q is called %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]bool{caseMean: true, caseAll: true, caseQuad: true, "mean of triplets": true, "quadruplet": true, "Res50+Bert": false, "": false} {
		if isMean(name) != want {
			t.Errorf("%q stands for others: %t", name, !want)
		}
	}
}

// broke takes so many bytes.
type broke struct{ left int }

func (w *broke) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errBroke
	}
	return len(p), nil
}

var errBroke = fmt.Errorf("no more")

// TestWritersTellOfErrors of what they write to.
func TestWritersTellOfErrors(t *testing.T) {
	r := example()
	timing := &Timing{Seconds: 61, Decisions: []DecisionTime{{"abacus", 4, 12.34}, {"overlap", 16, 5}}}
	for name, err := range map[string]error{
		"text": r.WriteText(&broke{}), "page": r.WriteHTML(&broke{}), "part of a page": r.WriteHTML(&broke{3000}),
		"JSON": writeJSON(&broke{}, r), "timing": timing.WriteText(&broke{}),
	} {
		if err == nil {
			t.Errorf("%s: the error is not told", name)
		}
	}
}

func TestTimingAsText(t *testing.T) {
	timing := &Timing{Began: time.Unix(0, 0), Seconds: 61.4, Decisions: []DecisionTime{{"abacus", 4, 12.34}, {"overlap", 16, 5}}}
	var b strings.Builder
	if err := timing.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{"what a decision took": 1, " 4 ways": 1, "12.3 µs": 1, "16 ways       5.0 µs": 1, "\n61 s in all\n": 1} {
		if n := strings.Count(b.String(), want); n != times {
			t.Errorf("%q is there %d times in\n%s", want, n, &b)
		}
	}
	b.Reset()
	if err := (&Timing{Seconds: 1}).WriteText(&b); err != nil || b.String() != "\n1 s in all\n" {
		t.Errorf("%v, without decisions:\n%s", err, &b)
	}
}
