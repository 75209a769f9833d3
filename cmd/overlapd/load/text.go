package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	hdrhistogram "github.com/HdrHistogram/hdrhistogram-go"
)

const (
	histogramRows  = 14
	histogramWidth = 40 // of the longest bar, in columns
)

// WriteText writes the result for a person to look at.
func (res *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	res.writeHead(&b)
	res.writeTable(&b)
	res.writeNotes(&b)
	if res.latency != nil {
		writeHistogram(&b, res.latency)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (res *Result) writeHead(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %s", res.Scenario, res.URL)
	if server := strings.TrimSpace(res.Server); server != "" {
		fmt.Fprintf(b, " (%s)", server)
	}
	if res.Device != "" {
		fmt.Fprintf(b, ", device %s", res.Device)
	}
	fmt.Fprintf(b, "\n%.1f s after %.1f s of warm-up, %d connections", res.Duration, res.Warmup.Duration, res.Connections)
	if res.Rate > 0 {
		fmt.Fprintf(b, ", %s arrivals at %g/s", res.Arrivals, res.Rate)
	}
	fmt.Fprintf(b, ", seed %d; times in ms\n", res.Seed)
	if res.Interrupted {
		b.WriteString("interrupted: this is what was measured until then\n")
	}
	b.WriteByte('\n')
}

func (res *Result) writeTable(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	width := len("service")
	for _, s := range res.Services {
		width = max(width, len(s.Name))
	}
	fmt.Fprintf(t, "%-*s\trequests\terrors\tanswers/s\tgood/s\ttarget\tp50\tp90\tp99\tp99.9\tmax\t\n", width, "service")
	for i := range res.Services {
		s := &res.Services[i]
		writeRow(t, width, s.Name, &s.Load)
	}
	if len(res.Services) > 1 {
		writeRow(t, width, "all", &res.Load)
	}
	t.Flush()
}

func writeRow(w io.Writer, width int, name string, l *Load) {
	good, target := "-", "-"
	if l.Goodput != nil {
		good = fmt.Sprintf("%.1f", *l.Goodput)
	}
	if l.TargetMS > 0 {
		target = fmt.Sprintf("%g", l.TargetMS)
	}
	fmt.Fprintf(w, "%-*s\t%d\t%d\t%.1f\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n",
		width, name, l.Requests, sum(l.Errors), l.Throughput, good, target,
		l.Latency.P50, l.Latency.P90, l.Latency.P99, l.Latency.P999, l.Latency.Max)
}

func (res *Result) writeNotes(b *strings.Builder) {
	b.WriteByte('\n')
	writeErrors(b, "errors", res.Errors)
	writeErrors(b, "errors in warm-up", res.Warmup.Errors)
	if l := res.SendLag; l != nil {
		fmt.Fprintf(b, "send lag: p99 %.3f ms, max %.3f ms; %d sent over 1 ms late, %d of them for want of a connection; generator alone p99 %.3f ms\n",
			l.P99, l.Max, l.Late, l.LateBusy, l.WakeP99)
	}
	if s := res.Score; s != nil {
		b.WriteString(s.String() + "\n")
	}
}

func (s *Score) String() string {
	name := s.Metric
	if s.Percentile > 0 {
		name = fmt.Sprintf("p%g %s", s.Percentile, s.Metric)
	}
	met := ""
	if s.Met != nil {
		met = ", target met"
		if !*s.Met {
			met = ", target missed"
		}
	}
	return fmt.Sprintf("%s: %.4g %s%s (%s)", name, s.Value, s.Unit, met, s.Note)
}

// writeErrors writes one line, the most frequent reason first.
func writeErrors(b *strings.Builder, title string, errors map[string]int64) {
	if len(errors) == 0 {
		return
	}
	reasons := slices.SortedFunc(maps.Keys(errors), func(x, y string) int {
		return cmp.Or(cmp.Compare(errors[y], errors[x]), cmp.Compare(x, y))
	})
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = fmt.Sprintf("%s %d", r, errors[r])
	}
	fmt.Fprintf(b, "%s: %s\n", title, strings.Join(parts, ", "))
}

func sum(counts map[string]int64) int64 {
	var n int64
	for _, c := range counts {
		n += c
	}
	return n
}

// writeHistogram draws latencies in rows whose bounds grow by a fixed factor.
func writeHistogram(b *strings.Builder, l *latencies) {
	if l.count() == 0 {
		return
	}
	lo := math.Log(float64(max(l.min, minLatency)))
	step := max((math.Log(float64(max(l.max, minLatency)))-lo)/histogramRows, 1e-9)
	var rows [histogramRows]int64
	for _, bar := range l.hist.Distribution() {
		if bar.Count > 0 {
			rows[rowOf(bar, lo, step)] += bar.Count
		}
	}
	most := slices.Max(rows[:])
	b.WriteString("\nlatency, ms\n")
	for i, n := range rows {
		upper := time.Duration(math.Exp(lo + step*float64(i+1)))
		line := fmt.Sprintf("≤ %10.3f %s %d", milliseconds(upper), bar(n, most), n)
		b.WriteString(line + "\n")
	}
}

func rowOf(bar hdrhistogram.Bar, lo, step float64) int {
	middle := float64(bar.From+bar.To) / 2
	row := int((math.Log(max(middle, 1)) - lo) / step)
	return min(max(row, 0), histogramRows-1)
}

// bar draws n of most in eighths of a column; what is not zero can be seen.
func bar(n, most int64) string {
	eighths := int(math.Round(float64(n) / float64(most) * histogramWidth * 8))
	if n > 0 {
		eighths = max(eighths, 1)
	}
	drawn := strings.Repeat("█", eighths/8)
	width := eighths / 8
	if rest := eighths % 8; rest > 0 {
		drawn += string([]rune("▏▎▍▌▋▊▉")[rest-1])
		width++
	}
	return drawn + strings.Repeat(" ", histogramWidth-width)
}
