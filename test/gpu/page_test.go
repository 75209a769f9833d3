package gpu

import (
	"bytes"
	"cmp"
	"fmt"
)

// The ways of serving besides the policies of one daemon: a daemon for each service, so
// that none knows of another. Without MPS the driver gives them time slices, with it their
// kernels run side by side.
const (
	timeSlicing = "time slicing"
	plainMPS    = "MPS"
	copiesMPS   = "copies under MPS" // two daemons for each service, as a server with two instances of each model
	staticSplit = "static"           // of MPS, by the shares that overlapd advise finds
	overlapping = "overlap"
)

// references are what others report of services that share a GPU without a scheduler.
const references = `
Public figures, source not recorded, to compare with:

- Copies of one small model under MPS on an H200 have 3.6 times the throughput of one.
- Four instances with 25 % of a GPU each have a p99 of 173 ms at a concurrency of 16, 558 ms at 32 and 1,153 ms at 100.
`

// page is the report for people.
func (r *report) page() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s, %s\n", r.Device, r.Started.Format("2 January 2006"))
	if r.Rehearsal {
		b.WriteString("\nA rehearsal on the CPU: no figure says anything about a GPU.\n")
	}
	if len(r.Policies) > 0 {
		r.sideBySide(&b)
	}
	if len(r.Mixed) > 0 {
		b.WriteString("\n## How well groups are predicted where two batch sizes are mixed\n\n| spans | groups | error, % | measured/predicted |\n|---:|---:|---:|---:|\n")
		for _, m := range r.Mixed {
			fmt.Fprintf(&b, "| %d | %d | %.1f | %.2f |\n", m.Spans, m.Rounds, m.MAPE, m.P50)
		}
	}
	b.WriteString("\n## What was wanted\n\n| | found | wanted | |\n|---|---|---|---|\n")
	for _, v := range r.Verdicts {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", v.Name, cmp.Or(v.Got, "–"), v.Want, v.Answer)
	}
	b.WriteString("\n## Steps\n\n| | seconds | |\n|---|---:|---|\n")
	for _, s := range r.Steps {
		how := "through"
		switch {
		case s.NotRun > 0:
			how = fmt.Sprintf("%d measurements not run", s.NotRun)
		case s.Failed:
			how = "failed"
		case s.Skipped:
			how = "not measured"
		}
		fmt.Fprintf(&b, "| %s | %.0f | %s |\n", s.Name, s.Seconds, how)
	}
	return b.Bytes()
}

// sideBySide is the table of what each way of serving made of the same load.
func (r *report) sideBySide(b *bytes.Buffer) {
	b.WriteString("\n## The same load, served in different ways\n")
	for _, l := range r.Load {
		r.sameLoad(b, &l)
	}
	b.WriteString(references)
}

// sameLoad is the table of one load.
func (r *report) sameLoad(b *bytes.Buffer, l *loadSetting) {
	on := map[bool]string{true: "on", false: "off"}
	fmt.Fprintf(b, "\n%.1f requests a second, as much work as %.2f of what one batch after another can do, in %d turns of %.1f s. TF32 is %s, CUDA graphs are %s for all.\n\n",
		l.Rate, l.Offered, l.Rounds, l.Turn, on[l.TF32], on[l.Graphs])
	var overlap policyResult
	for _, p := range r.Policies {
		if p.Policy == overlapping && p.Offered == l.Offered {
			overlap = p
		}
	}
	b.WriteString("| | turns | violations, % | goodput, 1/s | of overlap's | p99/target | p99/alone |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for _, p := range r.Policies {
		if p.Offered != l.Offered {
			continue
		}
		share := "–"
		if overlap.Goodput > 0 {
			share = fmt.Sprintf("%.2f", p.Goodput/overlap.Goodput)
		}
		fmt.Fprintf(b, "| %s | %d | %.1f | %.1f | %s | %.2f | %.2f |\n", p.Policy, p.Turns, 100*p.Violations, p.Goodput, share, p.P99, p.Alone)
	}
}
