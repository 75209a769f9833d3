package reproduce

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// absent stands where nobody has a number.
const absent = "-"

// number writes a value of a figure.
func (f *Figure) number(v *float64) string {
	if v == nil {
		return absent
	}
	return f.plain(*v)
}

func (f *Figure) plain(v float64) string {
	if f.percent {
		return fmt.Sprintf("%.*f %%", max(f.decimals-2, 0), 100*v)
	}
	return fmt.Sprintf("%.*f", f.decimals, v)
}

// tick writes a value beside an axis, with no more digits than it has.
func (f *Figure) tick(v float64) string {
	if f.percent {
		return fmt.Sprintf("%.4g %%", 100*v)
	}
	return fmt.Sprintf("%.4g", v)
}

func percentage(v *float64) string {
	if v == nil {
		return absent
	}
	return fmt.Sprintf("%.1f %%", *v)
}

// WriteText writes the result for a terminal: of each figure the means, or
// all it has if it has none.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Label)
	fmt.Fprintf(&b, "%d seeds from %d, %d queries a run, on %s\n", r.Seeds, r.Seed, r.Queries, r.Device)
	for _, f := range r.Figures {
		f.writeText(&b)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "\n%s: %s\n  %s\n", figureName(m.Figure), m.Title, m.Why)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// figureName is "figure 14", or the name of what the paper has no figure of.
func figureName(number string) string {
	if number != "" && number[0] >= '0' && number[0] <= '9' {
		if strings.Contains(number, " and ") {
			return "figures " + number
		}
		return "figure " + number
	}
	return number
}

func (f *Figure) writeText(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s (emulated)\n", figureName(f.Figure), f.Title)
	for _, qps := range f.loads() {
		f.writeLoad(b, qps)
	}
	if len(f.Comparisons) > 0 {
		w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "better by\tqps\tours\tpaper\tauthors\t\n")
		for _, row := range f.Comparisons {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", row.Case, load(row.QPS), percentage(row.Ours), percentage(row.Paper), percentage(row.Authors))
		}
		_ = w.Flush() // a strings.Builder takes all
	}
	for _, n := range f.Notes {
		fmt.Fprintf(b, "  %s\n", n)
	}
}

func load(qps float64) string {
	if qps == 0 {
		return absent
	}
	return fmt.Sprintf("%g", qps)
}

// maxTextRows is how many rows of a load a terminal shows beside means.
const maxTextRows = 24

// isMean tells whether a case stands for others, or is the only one of its
// kind.
func isMean(name string) bool {
	return slices.Contains([]string{caseMean, caseAll, caseQuad, manyCase(3), manyCase(4)}, name)
}

func (f *Figure) writeLoad(b *strings.Builder, qps float64) {
	cases := f.cases(qps)
	if means := slices.DeleteFunc(slices.Clone(cases), func(c string) bool { return !isMean(c) }); len(means) > 0 && len(cases)*len(f.policies()) > maxTextRows {
		cases = means
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\tqps\tpolicy\tours\tpaper\tauthors\t\n", f.Unit)
	for _, c := range cases {
		for _, p := range f.policies() {
			if row := f.find(c, qps, p); row != nil {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", c, load(qps), p, f.number(row.Ours), f.number(row.Paper), f.number(row.Authors))
			}
		}
	}
	_ = w.Flush() // a strings.Builder takes all
}
