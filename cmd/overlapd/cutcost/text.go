package cutcost

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteText writes the report as a table.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "model\tbatch\tthreads\toperators\twhole ms\tcut ms\tratio\twhole MiB\tcut MiB\tratio\tlive MiB\toutputs\t")
	for _, row := range r.Runs {
		equal := "equal"
		if !row.Equal {
			equal = "DIFFER"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.2f\t%.2f\t%.3f\t%.0f\t%.0f\t%.2f\t%.1f\t%s\t\n",
			row.Model, row.Batch, row.Threads, row.Segments, row.WholeMS, row.CutMS, row.Ratio,
			mib(row.WholeRSSBytes), mib(row.CutRSSBytes), row.RSSRatio, mib(row.Intermediates), equal)
	}
	return t.Flush()
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
