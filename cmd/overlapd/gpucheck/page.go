package gpucheck

import (
	"bytes"
	"html/template"
)

// page is complete in itself: it refers to nothing outside.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": func(f float64) float64 { return 100 * f },
	"width":   func(value, most float64) float64 { return 100 * value / max(most, 1e-9) },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>overlapd gpu-check: {{.Report.Device}}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 1.5em auto; max-width: 72em; padding: 0 1em; color: #222; background: #fff; }
h1 { font-size: 1.4em; line-height: 1.25; overflow-wrap: anywhere; } h2 { font-size: 1.15em; margin-top: 2em; }
.label { background: #fff3cd; border: 1px solid #e0c060; padding: .5em .8em; }
.wide { overflow-x: auto; margin: .8em 0; }
table { border-collapse: collapse; font-size: .9em; }
td, th { padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; vertical-align: top; }
td:first-child, th:first-child { text-align: left; }
.words td, .words th { text-align: left; white-space: normal; }
.holds, .done { color: #146c2e; } .misses, .failed { color: #a3261c; } .else { color: #666; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .25em .7em; max-width: 40em; font-size: .9em; align-items: center; }
.bar { background: #2f6db3; height: 1em; min-width: 1px; } .bad .bar { background: #c2571a; }
nav a { margin-right: .8em; color: #0058a0; } p { max-width: 56em; }
</style>
</head>
<body>
<h1>overlapd gpu-check: {{.Report.Device}}</h1>
{{if .Report.Rehearsal}}<p class="label"><strong>{{.Label}}</strong></p>{{end}}
<p>{{.Report.Started.Format "2006-01-02 15:04 MST"}}, {{printf "%.0f" .Report.Seconds}} s, overlapd {{.Report.Version}}, commit {{.Report.Commit}}, seed {{.Report.Seed}}. {{.Facts}}</p>
<nav>{{range .Tables}}<a href="#{{.Anchor}}">{{.Title}}</a>{{end}}</nav>
<h2>Wanted and found</h2>
<div class="wide"><table class="words"><tr><th></th><th>what</th><th>found</th><th>wanted</th></tr>
{{range .Report.Verdicts}}<tr><td class="{{if eq .Answer "PASS"}}holds{{else if eq .Answer "MISS"}}misses{{else}}else{{end}}">{{.Answer}}</td><td>{{.What}}</td><td>{{.Got}}</td><td>{{.Want}}</td></tr>
{{end}}</table></div>
<h2>Steps</h2>
<div class="wide"><table class="words"><tr><th>step</th><th>ended</th><th>s</th><th>of s</th><th>why</th></tr>
{{range .Report.Steps}}<tr><td>{{.Title}}</td><td class="{{if eq .Status "done"}}done{{else if eq .Status "failed"}}failed{{else}}else{{end}}">{{.Status}}</td><td>{{printf "%.1f" .Seconds}}</td><td>{{printf "%.0f" .Budget}}</td><td>{{.Error}}</td></tr>
{{end}}</table></div>
{{range $t := .Tables}}
<h2 id="{{.Anchor}}">{{.Title}}{{if $.Report.Rehearsal}} (rehearsal on the CPU){{end}}</h2>
{{with .Note}}<p>{{.}}</p>{{end}}
{{if eq .Anchor "load"}}<div class="bars bad">{{range $.Report.Policies}}<span>{{.Policy}}, violations</span><span class="bar" style="width:{{printf "%.1f" (width .Violations $.MostViolations)}}%"></span><span>{{printf "%.1f" (percent .Violations)}} %</span>{{end}}</div>
<div class="bars" style="margin-top:.6em">{{range $.Report.Policies}}<span>{{.Policy}}, goodput</span><span class="bar" style="width:{{printf "%.1f" (width .Goodput $.MostGoodput)}}%"></span><span>{{printf "%.0f" .Goodput}} /s</span>{{end}}</div>{{end}}
<div class="wide"><table><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
{{end}}
{{with .Report.Facts}}{{with .Libraries}}<h2>Libraries of CUDA</h2><ul>{{range .}}<li style="overflow-wrap:anywhere">{{.}}</li>{{end}}</ul>{{end}}{{end}}
</body>
</html>
`))

// page returns the report as one page that refers to nothing outside.
func (r *Report) page() ([]byte, error) {
	view := struct {
		Report                      *Report
		Label, Facts                string
		Tables                      []table
		MostViolations, MostGoodput float64
	}{Report: r, Label: rehearsalLabel, Facts: r.Facts.text(), Tables: r.tables()}
	for _, p := range r.Policies {
		view.MostViolations, view.MostGoodput = max(view.MostViolations, p.Violations), max(view.MostGoodput, p.Goodput)
	}
	var b bytes.Buffer
	err := page.Execute(&b, view)
	return b.Bytes(), err
}
