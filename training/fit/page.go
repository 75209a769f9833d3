package fit

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

// page is complete in itself: it refers to nothing outside.
var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"percent":   percent,
	"join":      strings.Join,
	"units":     join,
	"each":      percents,
	"restraint": (*Restraint).text,
	"milli":     func(micros float64) string { return fmt.Sprintf("%.2f", micros/microsPerMilli) },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>overlapd: report of a predictor</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right; }
td:first-child, th:first-child { text-align: left; }
figure { display: inline-block; margin: 1em 1em 0 0; } svg { max-width: 100%; height: auto; }
</style>
</head>
<body>
<h1>How far a predictor is off</h1>
<p>{{.Rows}} groups of {{len .Models}} models{{with .Device}}, measured on {{.}}{{end}}.
Recipe {{.Recipe}}, {{units .Hidden}} hidden units, {{.Inputs}} inputs, {{.Epochs}} epochs, seed {{.Seed}}: {{printf "%.1f" .Seconds}} s.{{with .Restraint}}
Restraint: {{restraint .}}.{{end}}
{{.Split}} split: {{.TrainRows}} rows to fit with, {{.TestRows}} kept aside.</p>

<table>
<tr><th>mean absolute percentage error</th><th>kept aside</th><th>fitted with</th><th>one for each set of models</th></tr>
{{range .Techniques}}<tr><td>{{.Name}}</td><td>{{printf "%.2f" .Test}}</td><td>{{printf "%.2f" .Train}}</td><td>{{with .PerSet}}{{printf "%.2f" .}}{{else}}-{{end}}</td></tr>
{{end}}</table>
<p>Measured/predicted of the network, rows kept aside:
1 % {{printf "%.3f" .Quantiles.P01}}, 50 % {{printf "%.3f" .Quantiles.P50}}, 90 % {{printf "%.3f" .Quantiles.P90}}, 95 % {{printf "%.3f" .Quantiles.P95}}, 99 % {{printf "%.3f" .Quantiles.P99}}.
{{if gt (len .Folds) 1}}Folds: {{each .Folds}} %.{{end}}</p>

<figure>{{.Scatter}}<figcaption>Predicted over measured latency, rows kept aside. On the line they are the same.</figcaption></figure>
<figure>{{.Curves}}<figcaption>How many rows are off by at most how much.</figcaption></figure>

<h2>By number of spans</h2>
<table>
<tr><th>spans</th><th>rows</th>{{range .Techniques}}<th>{{.Name}}</th>{{end}}</tr>
{{range $s := .Spans}}<tr><td>{{.Spans}}</td><td>{{.Rows}}</td>{{range $.Techniques}}<td>{{percent $s.MAPE .Name}}</td>{{end}}</tr>
{{end}}</table>

<h2>By models</h2>
<table>
<tr><th>models</th><th>rows</th>{{range .Techniques}}<th>{{.Name}}</th>{{if .PerSet}}<th>for itself</th>{{end}}{{end}}</tr>
{{range $s := .Sets}}<tr><td>{{join .Models " + "}}</td><td>{{.Rows}}</td>{{range $.Techniques}}<td>{{percent $s.MAPE .Name}}</td>{{if .PerSet}}<td>{{percent $s.PerSet .Name}}</td>{{end}}{{end}}</tr>
{{end}}</table>

<h2>Worst rows</h2>
<table>
<tr><th>group</th><th>measured, ms</th><th>spread, ms</th><th>predicted, ms</th></tr>
{{range .Worst}}<tr><td>{{.Group}}</td><td>{{milli .Measured}}</td><td>{{milli .Std}}</td><td>{{milli .Predicted}}</td></tr>
{{end}}</table>
</body>
</html>
`))

// WriteHTML writes the report as one page, with pictures and nothing that is
// fetched from elsewhere.
func (r *Report) WriteHTML(w io.Writer) error {
	dots, err := scatter(r.tested[nameNetwork])
	if err != nil {
		return err
	}
	lines, err := r.curves()
	if err != nil {
		return err
	}
	// The drawings hold names of techniques and numbers only.
	return page.Execute(w, struct {
		*Report
		Scatter, Curves template.HTML
	}{r, template.HTML(dots), template.HTML(lines)})
}
