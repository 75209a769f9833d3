package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/report"
)

// Limits of a chart.
const (
	// maxDots limits the rows that are drawn, to keep the page small.
	maxDots     = 2500
	curvePoints = 200
	// mostOff is the error in percent at which the curves end.
	mostOff = 60.0
)

// Document returns the report as text, tables and charts.
func (r *Report) Document() *report.Document {
	d := &report.Document{Title: "How far a predictor is off"}
	d.Text("%s of %s, measured on %s", report.Count(r.Rows, "group"), report.Count(len(r.Models), "model"), cmp.Or(r.Device, "a device that the measurements do not name"))
	d.Text("recipe %s, %s hidden units, %d inputs, %d epochs, seed %d: %.1f s", r.Recipe, join("%d", r.Hidden), r.Inputs, r.Epochs, r.Seed, r.Seconds)
	if r.Regularization != nil {
		d.Text("%s", r.Regularization.text())
	}
	d.Text("%s split: %d rows to fit with, %d kept aside", r.Split, r.TrainRows, r.TestRows)
	d.Heading("Error in percent, mean absolute")
	d.Table(r.techniqueTable())
	q := r.Quantiles
	d.Text("measured/predicted of the network, rows kept aside: 1 %% %.3f, 50 %% %.3f, 90 %% %.3f, 95 %% %.3f, 99 %% %.3f", q.P01, q.P50, q.P90, q.P95, q.P99)
	if len(r.Folds) > 1 {
		d.Text("folds: %s %%", join("%.2f", r.Folds))
	}
	d.Chart(scatter(r.tested[nameNetwork]))
	d.Chart(r.curves())
	d.Heading("Error by number of spans")
	d.Table(r.groupTable("spans", r.Spans, func(s groupErrors) string { return fmt.Sprint(s.Spans) }, false))
	d.Heading("Error by models")
	d.Table(r.groupTable("models", r.Sets, func(s groupErrors) string { return strings.Join(s.Models, " + ") }, true))
	d.Heading("Worst rows kept aside")
	d.Table(r.worstTable())
	return d
}

// join formats the elements of a list, separated by commas.
func join(format string, values any) string {
	// Formatting a slice puts the elements into brackets, separated by spaces.
	return strings.ReplaceAll(strings.Trim(fmt.Sprintf(format, values), "[]"), " ", ", ")
}

// techniqueTable lists the errors of each technique, on held-out rows and on rows used for fitting.
func (r *Report) techniqueTable() *report.Table {
	t := report.NewTable("technique", "kept aside", "fitted with", "one for each set")
	for _, e := range r.Techniques {
		perSet := "-"
		if e.PerSet != nil {
			perSet = fmt.Sprintf("%.2f", *e.PerSet)
		}
		t.Rowf("%s\t%.2f\t%.2f\t%s", e.Name, e.Test, e.Train, perSet)
	}
	return t
}

// groupTable lists the errors of each technique by kind of group. With perSet, it also has the
// errors of predictors that were fitted to each set of models separately.
func (r *Report) groupTable(head string, groups []groupErrors, name func(groupErrors) string, perSet bool) *report.Table {
	columns := []string{head, "rows"}
	for _, e := range r.Techniques {
		if columns = append(columns, e.Name); perSet && e.PerSet != nil {
			columns = append(columns, "for itself")
		}
	}
	t := report.NewTable(columns...)
	for _, s := range groups {
		row := []string{name(s), fmt.Sprint(s.Rows)}
		for _, e := range r.Techniques {
			if row = append(row, percent(s.MAPE, e.Name)); perSet && e.PerSet != nil {
				row = append(row, percent(s.PerSet, e.Name))
			}
		}
		t.Row(row...)
	}
	return t
}

// percent formats an error, or a dash if there is none.
func percent(errors map[string]float64, name string) string {
	if v, ok := errors[name]; ok {
		return fmt.Sprintf("%.2f", v)
	}
	return "-"
}

// worstTable lists the rows with the largest errors. Their spread shows whether a better
// prediction was possible.
func (r *Report) worstTable() *report.Table {
	t := report.NewTable("measured ms", "spread", "predicted ms", "group")
	for _, row := range r.Worst {
		t.Rowf("%.2f\t%.2f\t%.2f\t%s", row.Measured/microsPerMilli, row.Std/microsPerMilli, row.Predicted/microsPerMilli, row.Group)
	}
	return t
}

// scatter draws predicted over measured latencies. Both axes are logarithmic, because latencies
// differ by orders of magnitude.
func scatter(tested []point) *report.Chart {
	dots := report.Series{Name: "a row kept aside", Dots: true}
	for i := 0; i < len(tested); i += max(1, (len(tested)+maxDots-1)/maxDots) {
		dots.X, dots.Y = append(dots.X, tested[i].measured/microsPerMilli), append(dots.Y, tested[i].predicted/microsPerMilli)
	}
	same := report.Series{Name: "predicted = measured", Color: 1}
	if len(dots.X) > 0 {
		same.X = []float64{slices.Min(dots.X), slices.Max(dots.X)}
		same.Y = same.X
	}
	return &report.Chart{Log: true, Caption: "Predicted over measured latency, rows kept aside", X: "measured, ms", Y: "predicted, ms", Series: []report.Series{dots, same}}
}

// curves draws the distribution of errors for each technique: the fraction of rows within an error.
func (r *Report) curves() *report.Chart {
	c := &report.Chart{Caption: "How many rows are off by at most how much", X: "off by at most, percent", Y: "part of the rows kept aside, percent"}
	for i, t := range r.Techniques {
		s := report.Series{Name: t.Name, Color: i}
		s.X, s.Y = curve(r.tested[t.Name])
		c.Series = append(c.Series, s)
	}
	return c
}

// curve returns the points of one distribution.
func curve(tested []point) (x, y []float64) {
	off := make([]float64, len(tested))
	for i, t := range tested {
		off[i] = 100 * t.off()
	}
	slices.Sort(off)
	for i := range curvePoints + 1 {
		// Nextafter includes errors that are exactly at the limit.
		most := mostOff * float64(i) / curvePoints
		within, _ := slices.BinarySearch(off, math.Nextafter(most, math.Inf(1)))
		x, y = append(x, most), append(y, 100*float64(within)/float64(max(len(off), 1)))
	}
	return x, y
}
