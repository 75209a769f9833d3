package reproduce

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func pageOf(t *testing.T, r *Result) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPageSaysEverything finds what a reader needs: where the numbers come from,
// each figure and a way to it, all numbers, and what is missing and why.
func TestPageSaysEverything(t *testing.T) {
	r := example()
	r.Commit = strings.Repeat("c", 40)
	page := pageOf(t, r)
	for _, want := range []string{
		`class="label">Emulated: no GPU was used.`, "2 seeds from 1, 10 queries a run", "data 000000000000, commit " + strings.Repeat("c", 12) + ".",
		`<a href="#figure-15">figure 15</a>`, `<h2 id="figure-15">figure 15: violations (emulated)</h2>`, "a &lt; b",
		"<figcaption>violations at 100 queries per second, emulated</figcaption>", `<i style="background:#999999"></i>fcfs</span>`, "</i>the authors</span>",
		`<td>abacus against fcfs</td><td>100</td><td>50.0 %</td><td>55.7 %</td><td>7.3</td><td>75.0 %</td><td class="miss">-5.7</td><td class="miss">-25.0</td>`,
		`<td>fcfs</td><td>100</td><td>30.00 %</td><td>40.00 %</td><td>-25 %</td>`, "2 numbers in which ours misses",
		`<tr class="mean"><td>mean</td>`, `<tr class="next"><td>VGG16`, "figures 20 and 21, MIG: nothing was measured on MIG instances",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, `class="level"`) || strings.Contains(page, "NaN") {
		t.Error("the page has a level that nothing has, or no number where it should have one")
	}
}

// TestPageStandsAlone finds no reference to anything outside, nor a script, and
// a contrast for both light and dark.
func TestPageStandsAlone(t *testing.T) {
	page := pageOf(t, example())
	outside := regexp.MustCompile(`(?i)\ssrc=|url\(|@import|<link|<script|https?://`)
	for _, found := range outside.FindAllString(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), -1) {
		t.Errorf("the page refers to something outside: %q", found)
	}
	for _, color := range regexp.MustCompile(`var\((--[a-z]+)\)`).FindAllStringSubmatch(page, -1) {
		if n := strings.Count(page, color[1]+": #"); n != 2 {
			t.Errorf("%s is defined %d times, want once for light and once for dark", color[1], n)
		}
	}
	if anchors := regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1); len(anchors) == 0 {
		t.Error("no way to any figure")
	} else {
		for _, a := range anchors {
			if !strings.Contains(page, `id="`+a[1]+`"`) {
				t.Errorf("#%s leads nowhere", a[1])
			}
		}
	}
}

// TestPageIsWellFormed closes every element that it opens, whatever names say.
func TestPageIsWellFormed(t *testing.T) {
	r := example()
	r.Figures[0].Title, r.Figures[0].Rows[0].Case, r.Policies[0].Summary = `</h2><script>`, `<svg onload="x">`, "a & b"
	page := pageOf(t, r)
	if strings.Contains(page, "<script>") || strings.Contains(page, `onload="x"`) {
		t.Error("a name is taken for a part of the page")
	}
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta"}, xml.HTMLEntity
	depth := 0
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Local != "meta" {
				depth++
			}
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 {
		t.Errorf("%d elements are not closed", depth)
	}
}

// TestPageWithoutFigures and without anything missing has neither heading.
func TestPageWithoutFigures(t *testing.T) {
	page := pageOf(t, &Result{Label: "x"})
	if strings.Contains(page, "Not reproduced") || strings.Contains(page, "<svg") || strings.Contains(page, "all numbers") {
		t.Errorf("nothing is shown as\n%s", page)
	}
}

func TestLines(t *testing.T) {
	f := &Figure{}
	for _, policy := range []string{"p", "q"} {
		for _, qps := range []float64{50, 100} {
			for _, name := range []string{"a", "b", caseMean} {
				f.Rows = append(f.Rows, Row{Case: name, QPS: qps, Policy: policy})
			}
		}
	}
	var got []string
	for _, l := range f.lines() {
		got = append(got, fmt.Sprintf("%s %g %s %s", l.Case, l.QPS, l.Policy, l.Class))
	}
	want := []string{
		"mean 50 p mean", "mean 50 q mean", "a 50 p next", "a 50 q ", "b 50 p next", "b 50 q ",
		"mean 100 p mean", "mean 100 q mean", "a 100 p next", "a 100 q ", "b 100 p next", "b 100 q ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines\n%q, want\n%q", got, want)
	}
}

func TestChartsOfFigure(t *testing.T) {
	f := &Figure{Title: "x", Unit: "ms", level: 100, decimals: 1}
	for _, qps := range []float64{50, 100} {
		f.Rows = append(f.Rows, Row{Case: "a", QPS: qps, Policy: "fcfs", Ours: rounded(qps)}, Row{Case: caseMean, QPS: qps, Policy: "fcfs", Ours: rounded(qps)})
	}
	f.Rows = append(f.Rows, Row{Case: "a", QPS: 100, Policy: "edf", Ours: rounded(1), Authors: rounded(2)})
	charts := f.charts()
	if len(charts) != 2 {
		t.Fatalf("%d charts, want one for each load", len(charts))
	}
	calm, full := charts[0], charts[1]
	if calm.Caption != "ms at 50 queries per second, emulated" || calm.Level != "target" || calm.Marked || len(calm.Legend) != 1 {
		t.Errorf("the first is %+v", calm)
	}
	if !full.Marked || len(full.Legend) != 2 || full.Legend[1].Name != "edf" {
		t.Errorf("the second has the legend %+v, marked %t", full.Legend, full.Marked)
	}
	if svg := string(full.SVG); strings.Index(svg, ">mean<") > strings.Index(svg, ">a<") {
		t.Error("the mean is not the first group")
	}
	if f.table = true; f.charts() != nil {
		t.Error("a table has charts")
	}
}

func TestDistances(t *testing.T) {
	one, three, zero := rounded(1), rounded(3), rounded(0)
	for _, c := range []struct {
		got, want string
	}{
		{distance(three, one), "+2.0"}, {distance(one, three), "-2.0"}, {distance(nil, one), absent}, {distance(one, nil), absent},
		{relative(three, one), "+200 %"}, {relative(one, three), "-67 %"}, {relative(one, zero), absent}, {relative(nil, one), absent},
		{against(Row{Case: "mean: a against b"}), "a against b"}, {against(Row{Case: "scaled: a against b"}), "scaled: a against b"},
		{anchor("17, goodput"), "figure-17-goodput"},
		{(&Figure{percent: true}).tick(0.125), "12.5 %"}, {(&Figure{decimals: 2}).tick(1.5), "1.5"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	for _, c := range []struct {
		ours, other *float64
		want        bool
	}{{one, three, true}, {three, one, false}, {one, rounded(2.9), false}, {nil, three, false}, {one, nil, false}} {
		if got := missed(c.ours, c.other); got != c.want {
			t.Errorf("missed is %t, want %t", got, c.want)
		}
	}
}
