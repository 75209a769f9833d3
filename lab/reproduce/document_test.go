package reproduce

import (
	"math"
	"strings"
	"testing"
	"time"
)

func pageOf(t *testing.T, r *Result) string {
	t.Helper()
	var b strings.Builder
	if err := r.Document().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPageSaysEverything finds what a reader needs: where the numbers come from,
// each figure, all numbers, and what is missing and why.
func TestPageSaysEverything(t *testing.T) {
	r := example()
	r.Commit = strings.Repeat("c", 40)
	page := pageOf(t, r)
	for _, want := range []string{
		`class="label">Emulated: no GPU was used.`, "2 seeds from 1, 10 queries a run", "data 000000000000, commit " + strings.Repeat("c", 12) + "<",
		`<h2 id="figure-15">figure 15: violations (emulated)</h2>`, "a &lt; b", "<summary>policies</summary>",
		"<figcaption>violations at 100 queries per second, emulated</figcaption>", `></i>fcfs-authors</span>`, "</i>the authors</span>",
		`<td>abacus-authors against fcfs-authors</td><td class="right">100</td><td class="right">50.0 %</td><td class="right">55.7 %</td><td class="right">7.3</td><td class="right">75.0 %</td>` +
			`<td class="right" style="background:#f4b8b0;color:#222">-5.7</td><td class="right" style="background:#f4b8b0;color:#222">-25.0</td>`,
		`<td>fcfs-authors</td><td class="right">30.00 %</td><td class="right">-</td><td class="right">-</td><td class="right">40.00 %</td><td class="right">-25 %</td>`,
		"figures 20 and 21: MIG</h2>", "<li>nothing was measured on MIG instances",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, `class="level"></i>`) || strings.Contains(page, "NaN") {
		t.Error("the page has a level that nothing has, or no number where it should have one")
	}
}

func TestChartsOfFigure(t *testing.T) {
	f := &figure{Title: "x", Unit: "ms", level: 100, decimals: 1}
	for _, qps := range []float64{50, 100} {
		f.Rows = append(f.Rows, row{Case: "a", QPS: qps, Policy: "fcfs", Ours: rounded(qps)}, row{Case: caseMean, QPS: qps, Policy: "fcfs", Ours: rounded(qps)})
	}
	f.Rows = append(f.Rows, row{Case: "a", QPS: 100, Policy: "edf", Ours: rounded(1), Authors: rounded(2)})
	charts := f.charts()
	if len(charts) != 2 {
		t.Fatalf("%d charts, want one for each load", len(charts))
	}
	calm, full := charts[0], charts[1]
	if calm.Caption != "ms at 50 queries per second, emulated" || calm.LevelName != "target" || calm.MarkName != "" || len(calm.Series) != 1 {
		t.Errorf("the first is %+v", calm)
	}
	if full.MarkName == "" || len(full.Series) != 2 || full.Series[1].Name != "edf" || full.Series[1].Y[1] != 1 || full.Series[1].Marks[1] != 2 || !math.IsNaN(full.Series[1].Y[0]) {
		t.Errorf("the second has the series %+v, marks are %q", full.Series, full.MarkName)
	}
	if full.Groups[0] != caseMean {
		t.Error("the mean is not the first group")
	}
	if f.percent = true; f.charts()[1].Series[1].Y[1] != 100 {
		t.Error("a part of 1 is not drawn in percent")
	}
	if f.table = true; f.charts() != nil {
		t.Error("a table has charts")
	}
}

// TestColors gives each policy one colour in all charts, and no two the same.
func TestColors(t *testing.T) {
	seen := map[int]string{}
	for _, name := range append(VariantNames(), boundUnmerged, boundMerged) {
		color := colorOf(name, 99)
		if seen[color] != "" {
			t.Errorf("%s has the colour of %s", name, seen[color])
		}
		seen[color] = name
	}
	if got := colorOf("another", 3); got != 3 {
		t.Errorf("what is no policy has the colour %d, want that of its place", got)
	}
}

func TestTimingAsText(t *testing.T) {
	times := timing{Began: time.Unix(0, 0), Seconds: 61.4, Decisions: []decisionTime{{"abacus", 4, 12.34}, {"overlap", 16, 5}}}
	var b strings.Builder
	if err := (&Result{timing: times}).Times().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{"median time of a decision": 1, "abacus      4  12.3\n": 1, "overlap    16   5.0\n": 1, "\n61 s in all\n": 1} {
		if n := strings.Count(b.String(), want); n != times {
			t.Errorf("%q is there %d times in\n%s", want, n, &b)
		}
	}
	b.Reset()
	if err := (&Result{timing: timing{Seconds: 1}}).Times().WriteText(&b); err != nil || b.String() != "\n1 s in all\n" {
		t.Errorf("%v, without decisions:\n%s", err, &b)
	}
}

// TestVerdict says before anything else how many of the paper's numbers are met.
func TestVerdict(t *testing.T) {
	r := example()
	if got, want := r.verdict(), "Of 1 gain that the paper states, 0 are met within 2 points; the worst is figure 15, mean: abacus-authors against fcfs-authors, with 50.0 % instead of 55.7 %."; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	var text strings.Builder
	if err := r.Document().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(text.String(), "\n") // the label
	if !strings.HasPrefix(after, r.verdict()) {
		t.Errorf("the verdict is not on top:\n%s", text.String())
	}
	r.Figures = []*figure{
		{Figure: "3", Unit: "qps", more: true, Rows: []row{
			{Case: "a", Policy: "p", Ours: rounded(200), Paper: rounded(100)}, {Case: "b", Policy: "p", Ours: rounded(95), Paper: rounded(100)},
			{Case: "c", Policy: "p", Ours: rounded(70), Paper: rounded(100)}, {Case: "d", Policy: "p", Ours: rounded(1)},
		}},
		{Figure: "latency", Unit: "ms", decimals: 1, Rows: []row{{Case: "e", X: 2, Policy: "q", Ours: rounded(160), Paper: rounded(100)}, {Case: "f", Policy: "q", Ours: rounded(40), Paper: rounded(100)}}},
	}
	if got, want := r.verdict(), "Of 5 values that the paper states, 3 are met within 10 %; the worst is latency, e, q, with 160.0 instead of 100.0."; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	r.Figures = nil
	if got, want := r.verdict(), "The paper states no number to compare with."; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
