package fit

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	device := r.Device
	if device == "" {
		device = "a device that the measurements do not name"
	}
	fmt.Fprintf(&b, "%d groups of %d models, measured on %s\n", r.Rows, len(r.Models), device)
	fmt.Fprintf(&b, "recipe %s, %s hidden units, %d inputs, %d epochs, seed %d: %.1f s\n",
		r.Recipe, join(r.Hidden), r.Inputs, r.Epochs, r.Seed, r.Seconds)
	if r.Restraint != nil {
		fmt.Fprintln(&b, r.Restraint.text())
	}
	fmt.Fprintf(&b, "%s split: %d rows to fit with, %d kept aside\n\n", r.Split, r.TrainRows, r.TestRows)
	r.writeTechniques(&b)
	q := r.Quantiles
	fmt.Fprintf(&b, "\nmeasured/predicted of the network, rows kept aside: 1 %% %.3f, 50 %% %.3f, 90 %% %.3f, 95 %% %.3f, 99 %% %.3f\n",
		q.P01, q.P50, q.P90, q.P95, q.P99)
	if len(r.Folds) > 1 {
		fmt.Fprintf(&b, "folds: %s %%\n", percents(r.Folds))
	}
	r.writeSpans(&b)
	r.writeSets(&b)
	r.writeWorst(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// percent writes an error that may be missing.
func percent(errors map[string]float64, name string) string {
	if v, ok := errors[name]; ok {
		return fmt.Sprintf("%.2f", v)
	}
	return "-"
}

func percents(values []float64) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = fmt.Sprintf("%.2f", v)
	}
	return strings.Join(parts, ", ")
}

func join(units []int) string {
	parts := make([]string, len(units))
	for i, u := range units {
		parts[i] = fmt.Sprint(u)
	}
	return strings.Join(parts, ", ")
}

func table(b *strings.Builder) *tabwriter.Writer {
	return tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func (r *Report) writeTechniques(b *strings.Builder) {
	w := table(b)
	fmt.Fprint(w, "error in percent\tkept aside\tfitted with\tone for each set\t\n")
	for _, t := range r.Techniques {
		perSet := "-"
		if t.PerSet != nil {
			perSet = fmt.Sprintf("%.2f", *t.PerSet)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t\n", t.Name, t.Test, t.Train, perSet)
	}
	_ = w.Flush() // a strings.Builder takes all
}

func (r *Report) writeSpans(b *strings.Builder) {
	b.WriteByte('\n')
	w := table(b)
	fmt.Fprint(w, "spans\trows\t")
	r.writeNames(w)
	for _, s := range r.Spans {
		fmt.Fprintf(w, "%d\t%d\t", s.Spans, s.Rows)
		r.writeErrors(w, s.MAPE)
	}
	_ = w.Flush() // a strings.Builder takes all
}

func (r *Report) writeSets(b *strings.Builder) {
	b.WriteByte('\n')
	w := table(b)
	fmt.Fprint(w, "models\trows\t")
	r.writeNames(w)
	for _, s := range r.Sets {
		fmt.Fprintf(w, "%s\t%d\t", strings.Join(s.Models, " + "), s.Rows)
		r.writeErrors(w, s.MAPE)
	}
	_ = w.Flush() // a strings.Builder takes all
}

func (r *Report) writeNames(w io.Writer) {
	for _, t := range r.Techniques {
		fmt.Fprintf(w, "%s\t", t.Name)
	}
	fmt.Fprintln(w)
}

func (r *Report) writeErrors(w io.Writer, errors map[string]float64) {
	for _, t := range r.Techniques {
		fmt.Fprintf(w, "%s\t", percent(errors, t.Name))
	}
	fmt.Fprintln(w)
}

func (r *Report) writeWorst(b *strings.Builder) {
	b.WriteString("\nworst rows kept aside: measured (spread), predicted, in ms\n")
	for _, row := range r.Worst {
		fmt.Fprintf(b, "  %.2f (%.2f)  %.2f  %s\n", row.Measured/microsPerMilli, row.Std/microsPerMilli, row.Predicted/microsPerMilli, row.Group)
	}
}
