package reproduce

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

// page is complete in itself: it refers to nothing outside.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"name":     figureName,
	"anchor":   anchor,
	"load":     load,
	"percent":  percentage,
	"number":   (*Figure).number,
	"charts":   (*Figure).charts,
	"lines":    (*Figure).lines,
	"misses":   (*Figure).misses,
	"missed":   missed,
	"apart":    (*Figure).apart,
	"against":  against,
	"table":    func(f *Figure) bool { return f.table },
	"distance": distance,
	"relative": relative,
}).Parse(pageText))

//go:embed page.html
var pageText string

// WriteHTML writes the result as one page that refers to nothing outside.
func (r *Result) WriteHTML(w io.Writer) error { return page.Execute(w, r) }

// anchor names the place of a figure in the page.
func anchor(number string) string {
	return "figure-" + strings.ReplaceAll(strings.ReplaceAll(number, ",", ""), " ", "-")
}

// drawing is a chart of a page. Its legend is apart, so that it stays in sight
// while a wide chart is moved.
type drawing struct {
	Caption string
	Legend  []legend
	Marked  bool   // the authors have numbers
	Level   string // what the line says, "" for none
	SVG     template.HTML
}

type legend struct{ Color, Name string }

// charts draws the rows, each load by itself.
func (f *Figure) charts() []drawing {
	var list []drawing
	if f.table {
		return nil
	}
	for _, qps := range f.loads() {
		c := f.chart(qps)
		d := drawing{Caption: f.Unit, Marked: c.marked()}
		if qps > 0 {
			d.Caption = fmt.Sprintf("%s at %g queries per second", f.Unit, qps)
		}
		d.Caption += ", emulated"
		if f.level > 0 {
			d.Level = "target"
		}
		for i, s := range c.series {
			d.Legend = append(d.Legend, legend{c.colors[i], s})
		}
		d.SVG = template.HTML(c.svg()) // names in it are escaped where they are written
		list = append(list, d)
	}
	return list
}

// chart draws the rows of a load.
func (f *Figure) chart(qps float64) *chart {
	series := slices.DeleteFunc(f.policies(), func(p string) bool {
		return !slices.ContainsFunc(f.Rows, func(r Row) bool { return r.QPS == qps && r.Policy == p })
	})
	return &chart{
		title: f.Title, groups: f.meansFirst(qps), series: series, colors: colorsOf(series), text: f.plain, tick: f.tick, line: f.level,
		value: func(group, series string) (ours, authors *float64) {
			if r := f.find(group, qps, series); r != nil {
				return r.Ours, r.Authors
			}
			return nil, nil
		},
	}
}

// meansFirst are the cases of a load, with the means, which are what is in sight
// on a small screen, before the others.
func (f *Figure) meansFirst(qps float64) []string {
	cases := f.cases(qps)
	slices.SortStableFunc(cases, func(a, b string) int {
		switch {
		case isMean(a) == isMean(b):
			return 0
		case isMean(a):
			return -1
		}
		return 1
	})
	return cases
}

// line is a row of the table of all numbers.
type line struct {
	Row
	Class string // "mean", "next" for the first of a case, or ""
}

// lines are the rows, all of a load and a case together.
func (f *Figure) lines() []line {
	var list []line
	for _, qps := range f.loads() {
		for _, name := range f.meansFirst(qps) {
			class := "next"
			if isMean(name) {
				class = "mean"
			}
			for _, r := range f.Rows {
				if r.QPS != qps || r.Case != name {
					continue
				}
				list = append(list, line{r, class})
				if class == "next" {
					class = ""
				}
			}
		}
	}
	return list
}

// against names a comparison. Of means it goes without saying.
func against(r Row) string {
	name, _ := strings.CutPrefix(r.Case, caseMean+": ")
	return name
}

func distance(a, b *float64) string {
	if a == nil || b == nil {
		return absent
	}
	return fmt.Sprintf("%+.1f", *a-*b)
}

// relative tells by what part of b a number is off from it.
func relative(a, b *float64) string {
	if a == nil || b == nil || *b == 0 {
		return absent
	}
	return fmt.Sprintf("%+.0f %%", 100*(*a / *b - 1))
}

// apart are the means that the authors have too.
func (f *Figure) apart() []Row {
	return slices.DeleteFunc(slices.Clone(f.Rows), func(r Row) bool {
		return r.Case != caseMean || r.Ours == nil || r.Authors == nil
	})
}

// missedPoints is from how many percentage points on a number that is not met
// is told.
const missedPoints = 2

// missed tells whether ours is worse than another's.
func missed(ours, other *float64) bool {
	return ours != nil && other != nil && *other-*ours >= missedPoints
}

// misses tells where ours is worse than what the paper or its authors have.
func (f *Figure) misses() []string {
	var list []string
	tell := func(row *Row, whose string, other *float64) {
		if missed(row.Ours, other) {
			list = append(list, fmt.Sprintf("%s at %s queries/s: %s where %s %s, %.1f points less.",
				row.Case, load(row.QPS), percentage(row.Ours), whose, percentage(other), math.Abs(*other-*row.Ours)))
		}
	}
	for i := range f.Comparisons {
		tell(&f.Comparisons[i], "the paper has", f.Comparisons[i].Paper)
		tell(&f.Comparisons[i], "the authors have", f.Comparisons[i].Authors)
	}
	return list
}
