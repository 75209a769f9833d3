package reproduce

import (
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
	"number":   func(f *Figure, v *float64) string { return f.number(v) },
	"charts":   (*Figure).charts,
	"misses":   (*Figure).misses,
	"apart":    (*Figure).apart,
	"table":    func(f *Figure) bool { return f.table },
	"distance": distance,
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>overlapd: Abacus, reproduced on an emulated device</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 1.5em auto; max-width: 76em; padding: 0 1em; color: #222; background: #fff; }
h1 { font-size: 1.5em; line-height: 1.2; } h2 { font-size: 1.2em; margin-top: 2.2em; }
.label { background: #fff3cd; border: 1px solid #e0c060; padding: .5em .8em; }
.wide { overflow-x: auto; margin: .8em 0; } svg { display: block; }
table { border-collapse: collapse; font-size: .9em; } td, th { padding: .2em .7em; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
nav a { margin-right: .8em; } summary { cursor: pointer; color: #0058a0; padding: .3em 0; }
figcaption { color: #555; font-size: .9em; }
</style>
</head>
<body>
<h1>Abacus, reproduced</h1>
<p class="label"><strong>Emulated.</strong> {{.Label}}</p>
<p>{{.Seeds}} seeds from {{.Seed}}, {{.Queries}} queries a run; device: {{.Device}}; data {{printf "%.12s" .Data}}, commit {{.Commit}}.
Beside ours stand what the paper says in words (its figures show no numbers) and what its authors published of their runs. Times that differ from run to run are in <code>run.json</code>.</p>
<nav>{{range .Figures}}<a href="#{{anchor .Figure}}">{{name .Figure}}</a>{{end}}</nav>
<h2>Policies</h2>
<div class="wide"><table>{{range .Policies}}<tr><td>{{.Name}}</td><td style="text-align:left;white-space:normal">{{.Summary}}</td></tr>{{end}}</table></div>
{{range $f := .Figures}}
<h2 id="{{anchor .Figure}}">{{name .Figure}}: {{.Title}} (emulated)</h2>
{{range charts .}}<figure style="margin:0"><div class="wide">{{.SVG}}</div><figcaption>{{.Caption}}</figcaption></figure>
{{end}}{{range .Notes}}<p>{{.}}</p>
{{end}}{{with .Comparisons}}<div class="wide"><table>
<tr><th>better by</th><th>queries/s</th><th>ours, emulated</th><th>paper</th><th>section</th><th>authors</th><th>ours less paper, points</th><th>ours less authors</th></tr>
{{range .}}<tr><td>{{.Case}}</td><td>{{load .QPS}}</td><td>{{percent .Ours}}</td><td>{{percent .Paper}}</td><td>{{.Section}}</td><td>{{percent .Authors}}</td><td>{{distance .Ours .Paper}}</td><td>{{distance .Ours .Authors}}</td></tr>
{{end}}</table></div>
{{end}}{{with apart .}}<p>Means beside the authors' runs:</p><ul>{{range .}}<li>{{.}}</li>{{end}}</ul>{{end}}
{{with misses .}}<p>Where ours misses the paper's or the authors' number:</p><ul>{{range .}}<li>{{.}}</li>{{end}}</ul>{{end}}
<details{{if table .}} open{{end}}><summary>all numbers</summary><div class="wide"><table>
<tr><th>{{.Unit}}</th><th>queries/s</th><th>policy</th><th>ours, emulated</th><th>± over seeds</th><th>paper</th><th>authors</th></tr>
{{range .Rows}}<tr><td>{{.Case}}</td><td>{{load .QPS}}</td><td>{{.Policy}}</td><td>{{number $f .Ours}}</td><td>{{number $f .Spread}}</td><td>{{number $f .Paper}}</td><td>{{number $f .Authors}}</td></tr>
{{end}}</table></div></details>
{{end}}
{{with .Missing}}<h2>Not reproduced</h2><ul>{{range .}}<li>{{name .Figure}}, {{.Title}}: {{.Why}}</li>{{end}}</ul>{{end}}
</body>
</html>
`))

// WriteHTML writes the result as one page that refers to nothing outside.
func (r *Result) WriteHTML(w io.Writer) error { return page.Execute(w, r) }

// anchor names the place of a figure in the page.
func anchor(number string) string {
	return "figure-" + strings.ReplaceAll(strings.ReplaceAll(number, ",", ""), " ", "-")
}

// drawing is a chart of a page.
type drawing struct {
	SVG     template.HTML
	Caption string
}

// charts draws the rows, each load by itself.
func (f *Figure) charts() []drawing {
	var list []drawing
	if f.table {
		return nil
	}
	for _, qps := range f.loads() {
		c := f.chart(qps)
		caption := f.Unit
		if qps > 0 {
			caption = fmt.Sprintf("%s at %g queries per second", f.Unit, qps)
		}
		// Names in it are escaped where they are written.
		list = append(list, drawing{template.HTML(c.svg()), caption + ", emulated"})
	}
	return list
}

func (f *Figure) chart(qps float64) *chart {
	series := slices.DeleteFunc(f.policies(), func(p string) bool {
		return !slices.ContainsFunc(f.Rows, func(r Row) bool { return r.QPS == qps && r.Policy == p })
	})
	c := &chart{
		title: f.Title, groups: f.cases(qps), series: series, colors: colorsOf(series), text: f.plain, line: f.level,
		value: func(group, series string) (ours, authors *float64) {
			if r := f.find(group, qps, series); r != nil {
				return r.Ours, r.Authors
			}
			return nil, nil
		},
	}
	return c
}

func distance(a, b *float64) string {
	if a == nil || b == nil {
		return absent
	}
	return fmt.Sprintf("%+.1f", *a-*b)
}

// apart tells how far the means are from those of the authors' runs.
func (f *Figure) apart() []string {
	var list []string
	for i := range f.Rows {
		row := &f.Rows[i]
		if row.Case != caseMean || row.Ours == nil || row.Authors == nil || *row.Authors == 0 {
			continue
		}
		list = append(list, fmt.Sprintf("%s at %s queries/s: %s emulated, %s by the authors, %+.0f %%.",
			row.Policy, load(row.QPS), f.number(row.Ours), f.number(row.Authors), 100*(*row.Ours / *row.Authors - 1)))
	}
	return list
}

// missedPoints is from how many percentage points on a number that is not met
// is told.
const missedPoints = 2

// misses tells where ours is worse than what the paper or its authors have.
func (f *Figure) misses() []string {
	var list []string
	tell := func(row *Row, whose string, other *float64) {
		if row.Ours == nil || other == nil || *other-*row.Ours < missedPoints {
			return
		}
		list = append(list, fmt.Sprintf("%s at %s queries/s: %s where %s %s, %.1f points less.",
			row.Case, load(row.QPS), percentage(row.Ours), whose, percentage(other), math.Abs(*other-*row.Ours)))
	}
	for i := range f.Comparisons {
		tell(&f.Comparisons[i], "the paper has", f.Comparisons[i].Paper)
		tell(&f.Comparisons[i], "the authors have", f.Comparisons[i].Authors)
	}
	return list
}
