package reproduce

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/report"
)

// absent stands in place of a missing number.
const absent = "-"

// Document returns the result as text, tables and charts. Of figures with many rows a terminal
// shows the means, and a page all rows.
func (r *Result) Document() *report.Document {
	d := &report.Document{Title: cmp.Or(r.title, "Abacus, reproduced"), Label: r.Label}
	d.Text("%s", r.verdict())
	runs := ""
	if r.Queries > 0 {
		runs = fmt.Sprintf(" %d queries a run,", r.Queries)
	}
	d.Text("%d seeds from %d,%s on %s; data %.12s, commit %.12s", r.Seeds, r.Seed, runs, r.Device, r.Data, r.Commit)
	d.Text("%s Times that differ from run to run are in %s.", cmp.Or(r.about, "Our numbers appear next to those that the paper states in words (its figures show none) and those that its authors published of their runs."), timingFile)
	// The descriptions are folded, because most readers know the policies.
	policies := report.NewTable("policy", "description")
	for _, p := range r.Policies {
		policies.Row(p.Name, p.Summary)
	}
	fold(d, "policies", policies)
	for _, f := range r.Figures {
		f.show(d)
	}
	for _, m := range r.Missing {
		d.Heading("%s: %s", figureName(m.Figure), m.Title)
		d.List(m.Why)
	}
	return d
}

// verdict returns a sentence on how many of the paper's stated numbers are met, and which is missed
// by the most. Gains are compared in points, and other values relatively.
func (r *Result) verdict() string {
	var gains, values agreement
	for _, f := range r.Figures {
		for _, c := range f.Comparisons {
			if c.Ours != nil && c.Paper != nil {
				gains.add(*c.Paper-*c.Ours, missedPoints, "%s, %s, with %s instead of %s", figureName(f.Figure), c.Case, percentage(c.Ours), percentage(c.Paper))
			}
		}
		for _, v := range f.Rows {
			if v.Ours == nil || v.Paper == nil || *v.Paper == 0 {
				continue
			}
			// off is above 0 if our value is worse than the paper's.
			off := *v.Ours / *v.Paper - 1
			switch {
			case f.table: // Neither direction is better, so any difference counts.
				off = math.Abs(off)
			case f.more:
				off = -off
			}
			values.add(off, missedPart, "%s, %s, %s, with %s instead of %s", figureName(f.Figure), v.Case, v.Policy, f.number(v.Ours), f.number(v.Paper))
		}
	}
	list := slices.DeleteFunc([]string{
		gains.text("gain", fmt.Sprintf("%d points", missedPoints)), values.text("value", fmt.Sprintf("%.0f %%", 100*missedPart)),
	}, func(s string) bool { return s == "" })
	if len(list) == 0 {
		return "The paper states no number to compare with."
	}
	return strings.Join(list, " ")
}

// agreement counts the numbers that are compared with stated ones.
type agreement struct {
	// all counts the numbers, and met those that are met.
	all, met int

	// most is the difference of the worst number, and worst its description, "" if all are met.
	most  float64
	worst string
}

// add counts a number that is worse than the stated one by off. It is met if off is below least.
func (a *agreement) add(off, least float64, format string, args ...any) {
	switch a.all++; {
	case off < least:
		a.met++
	case a.worst == "" || off > a.most:
		a.most, a.worst = off, fmt.Sprintf(format, args...)
	}
}

// text returns the counts as a sentence, or "" if nothing was compared.
func (a *agreement) text(what, within string) string {
	if a.all == 0 {
		return ""
	}
	s := fmt.Sprintf("Of %s that the paper states, %d are met within %s", report.Count(a.all, what), a.met, within)
	if a.worst != "" {
		s += "; the worst is " + a.worst
	}
	return s + "."
}

// fold adds a table that a page shows on demand.
func fold(d *report.Document, summary string, t *report.Table) {
	inside := &report.Document{}
	inside.Table(t)
	d.Fold(summary, inside)
}

// figureName returns "figure 14" for a number, or the name of a figure that the paper does not
// have.
func figureName(number string) string {
	if number != "" && number[0] >= '0' && number[0] <= '9' {
		if strings.Contains(number, " and ") {
			return "figures " + number
		}
		return "figure " + number
	}
	return number
}

// show adds the figure to a document.
func (f *figure) show(d *report.Document) {
	d.Heading("%s: %s (emulated)", figureName(f.Figure), f.Title)
	for _, c := range f.charts() {
		d.Chart(c)
	}
	means, all := f.lines(false), f.lines(true)
	if f.X != "" {
		// The lines of the charts show the numbers.
		means = nil
	}
	d.Table(f.numbers(means))
	d.Table(f.comparisons())
	d.List(f.Notes...)
	if len(means) < len(all) {
		fold(d, "all numbers", f.numbers(all))
	}
}

// maxBriefRows is the largest number of rows of a load that are shown in addition to means.
const maxBriefRows = 24

// lines returns the rows grouped by load and case, the means first. If a load has many rows, it
// returns only the means, unless all is true.
func (f *figure) lines(all bool) []row {
	var list []row
	for _, qps := range f.loads() {
		// Rows of a case stay together. A long list of cases is cut to its means.
		cases := f.meansFirst(qps)
		if isMean(cases[0]) && len(cases)*len(f.policies()) > maxBriefRows && !all {
			cases = slices.DeleteFunc(cases, func(c string) bool { return !isMean(c) })
		}
		for _, name := range cases {
			for _, r := range f.Rows {
				if r.QPS == qps && r.Case == name {
					list = append(list, r)
				}
			}
		}
	}
	return list
}

// meansFirst returns the cases of a load. Means come first, because a small screen shows only the
// first ones.
func (f *figure) meansFirst(qps float64) []string {
	cases := f.cases(qps)
	rest := slices.DeleteFunc(slices.Clone(cases), isMean)
	return append(slices.DeleteFunc(cases, func(c string) bool { return !isMean(c) }), rest...)
}

// numbers returns the rows as a table.
func (f *figure) numbers(rows []row) *report.Table {
	if f.words {
		head := []string{f.Unit, "policy", "ours", "least", "most", "paper", "ours less paper"}
		if f.X != "" {
			head = slices.Insert(head, 1, f.X)
		}
		t := report.NewTable(head...)
		for _, r := range rows {
			cells := []string{r.Case, r.Policy, f.number(r.Ours), f.number(r.Least), f.number(r.Most), f.number(r.Paper), relative(r.Ours, r.Paper)}
			if f.X != "" {
				cells = slices.Insert(cells, 1, load(r.X))
			}
			t.Row(cells...)
		}
		return t
	}
	t := report.NewTable(f.Unit, "qps", "policy", "ours", "± over seeds", "paper", "authors", "ours less authors")
	for _, r := range rows {
		t.Row(r.Case, load(r.QPS), r.Policy, f.number(r.Ours), f.number(r.Spread), f.number(r.Paper), f.number(r.Authors), relative(r.Ours, r.Authors))
	}
	return t
}

// missedColor is the background of numbers that are worse than those they are compared with.
const missedColor = "#f4b8b0"

// comparisons returns the comparisons of policies as a table, in percent.
func (f *figure) comparisons() *report.Table {
	t := report.NewTable("better by", "qps", "ours", "paper", "section", "authors", "less paper", "less authors")
	for _, r := range f.Comparisons {
		// Most comparisons are of means, so the table does not repeat that.
		name, _ := strings.CutPrefix(r.Case, caseMean+": ")
		t.Row(name, load(r.QPS), percentage(r.Ours), percentage(r.Paper), r.Section, percentage(r.Authors), distance(r.Ours, r.Paper), distance(r.Ours, r.Authors))
		for column, other := range map[int]*float64{6: r.Paper, 7: r.Authors} {
			if missed(r.Ours, other) {
				t.Paint(column, missedColor)
			}
		}
	}
	return t
}

// number formats a value of the figure.
func (f *figure) number(v *float64) string {
	if f.percent {
		return written("%.*f %%", max(f.decimals-2, 0), 100, v)
	}
	return written("%.*f", f.decimals, 1, v)
}

// written formats a number times a factor, or a missing number.
func written(format string, decimals int, factor float64, v *float64) string {
	if v == nil {
		return absent
	}
	return fmt.Sprintf(format, decimals, factor**v)
}

// percentage formats a number in percent.
func percentage(v *float64) string { return written("%.*f %%", 1, 1, v) }

// load formats a load.
func load(qps float64) string {
	if qps == 0 {
		return absent
	}
	return fmt.Sprintf("%g", qps)
}

// distance formats the difference of two numbers.
func distance(a, b *float64) string {
	if a == nil || b == nil {
		return absent
	}
	return fmt.Sprintf("%+.1f", *a-*b)
}

// relative formats the relative difference of a from b.
func relative(a, b *float64) string {
	if a == nil || b == nil || *b == 0 {
		return absent
	}
	return fmt.Sprintf("%+.0f %%", 100*(*a / *b - 1))
}

// missedPoints is the difference in percentage points at which a number is painted as missed.
const missedPoints = 2

// missedPart is the relative difference at which a value counts as missed.
const missedPart = 0.1

// missed reports whether our number is worse than another one.
func missed(ours, other *float64) bool {
	return ours != nil && other != nil && *other-*ours >= missedPoints
}

// charts returns one chart for each load, or for each case if the figure has an axis.
func (f *figure) charts() []*report.Chart {
	if f.table {
		return nil
	}
	var list []*report.Chart
	if f.X != "" {
		for _, name := range f.cases(0) {
			list = append(list, f.curves(name))
		}
		return list
	}
	for _, qps := range f.loads() {
		c := &report.Chart{Caption: f.Unit + ", emulated", Y: f.Unit, Groups: f.meansFirst(qps), Level: f.level}
		if qps > 0 {
			c.Caption = fmt.Sprintf("%s at %g queries per second, emulated", f.Unit, qps)
		}
		if f.percent {
			c.Y += percentUnit
		}
		if f.level > 0 {
			c.LevelName = "target"
		}
		for _, policy := range f.policies() {
			f.draw(c, qps, policy)
		}
		list = append(list, c)
	}
	return list
}

// percentUnit completes the unit of values in percent.
const percentUnit = ", percent"

// curves returns the chart of a case, with a line for each policy that has values.
func (f *figure) curves(name string) *report.Chart {
	c := &report.Chart{Caption: name + ": " + f.Unit + ", emulated", X: f.X, Y: f.Unit}
	if f.percent {
		c.Y += percentUnit
	}
	for place, policy := range f.policies() {
		s := report.Series{Name: policy, Color: place}
		for _, r := range f.Rows {
			if r.Case == name && r.Policy == policy && r.Ours != nil {
				s.X, s.Y = append(s.X, r.X), append(s.Y, f.value(r.Ours))
			}
		}
		if len(s.X) > 0 {
			c.Series = append(c.Series, s)
		}
	}
	return c
}

// draw adds a policy to a chart, unless it has no rows at this load.
func (f *figure) draw(c *report.Chart, qps float64, policy string) {
	s, found := report.Series{Name: policy, Color: colorOf(policy, len(c.Series))}, false
	for _, name := range c.Groups {
		r := f.find(name, qps, policy)
		if r == nil {
			s.Y, s.Marks = append(s.Y, math.NaN()), append(s.Marks, math.NaN())
			continue
		}
		found = true
		s.Y, s.Marks = append(s.Y, f.value(r.Ours)), append(s.Marks, f.value(r.Authors))
		if r.Authors != nil {
			c.MarkName = "the authors"
		}
	}
	if found {
		c.Series = append(c.Series, s)
	}
}

// value returns a number as charts need it, NaN if it is missing.
func (f *figure) value(v *float64) float64 {
	switch {
	case v == nil:
		return math.NaN()
	case f.percent:
		return 100 * *v
	}
	return *v
}

// colorOf returns a colour index. Policies and bounds have the same colour in all charts, ours the
// strongest. Any other series has the colour of its place.
func colorOf(series string, place int) int {
	// The last names are ours and get the first colours.
	names := slices.Concat([]string{boundMerged, boundUnmerged}, VariantNames())
	if at := slices.Index(names, series); at >= 0 {
		return len(names) - 1 - at
	}
	return place
}

// WriteMarkdown writes each figure under a heading, in the form of the pages in docs/benchmarks:
// for each load a table with a row for each case and a column for each policy, and then the notes.
// A cell has the number, its variation over seeds, and in brackets the numbers of the paper or its
// authors.
func (r *Result) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "## %s: %s\n", figureName(f.Figure), f.Title)
		for _, load := range f.loads() {
			f.pivot(&b, load)
		}
		for i, note := range f.Notes {
			if i == 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "- %s\n", note)
		}
		b.WriteByte('\n')
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "## %s: %s\n\n%s\n\n", figureName(m.Figure), m.Title, m.Why)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// place returns the line and the column of a row in a table. A figure with an axis has a line for
// each place on the axis.
func (f *figure) place(r *row) (line, column string) {
	switch {
	case f.X == "":
		return r.Case, r.Policy
	case len(f.cases(0)) == 1:
		return fmt.Sprintf("%g", r.X), r.Policy
	}
	return fmt.Sprintf("%g", r.X), r.Case + ": " + r.Policy
}

// pivot writes the table of a load.
func (f *figure) pivot(b *strings.Builder, qps float64) {
	// Lines and columns keep the order in which rows first have them.
	cells := map[[2]string]string{}
	var lines, columns []string
	for _, r := range f.Rows {
		if r.QPS != qps {
			continue
		}
		line, column := f.place(&r)
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
		if !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
		cells[[2]string{line, column}] = f.cell(&r)
	}
	// The head of the first column has the load, the unit and the axis.
	unit := f.Unit
	if qps > 0 {
		unit = fmt.Sprintf("at %g queries/s, %s", qps, unit)
	}
	if f.X != "" {
		unit += " by " + f.X
	}
	if f.percent {
		unit += percentUnit
	}
	fmt.Fprintf(b, "\n| %s | %s |\n|---|%s\n", unit, strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
	for _, line := range lines {
		fmt.Fprintf(b, "| %s |", line)
		for _, column := range columns {
			fmt.Fprintf(b, " %s |", cells[[2]string{line, column}])
		}
		b.WriteByte('\n')
	}
}

// cell formats a row without its unit, which the table's head has.
func (f *figure) cell(r *row) string {
	number := func(v *float64) string { return strings.TrimSuffix(f.number(v), " %") }
	text := number(r.Ours)
	if r.Spread != nil && *r.Spread > 0 {
		text += " ± " + number(r.Spread)
	}
	// A range that rounding hides is left out.
	if r.Least != nil && number(r.Least) != number(r.Most) {
		text += fmt.Sprintf(", %s to %s", number(r.Least), number(r.Most))
	}
	for _, other := range []*float64{r.Paper, r.Authors} {
		if other != nil {
			text += " (" + number(other) + ")"
		}
	}
	return text
}
