package gpucheck

import (
	"fmt"
	"strings"
)

// rehearsalLabel stands at the top of whatever was not measured on a GPU.
const rehearsalLabel = "Rehearsal on the CPU: every step ran, and no number here says anything about a GPU."

// markdown returns the report as a short text for docs/benchmarks.
func (r *Report) markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# overlapd gpu-check: %s\n\n", r.Device)
	if r.Rehearsal {
		fmt.Fprintf(&b, "**%s**\n\n", rehearsalLabel)
	}
	fmt.Fprintf(&b, "%s, %.0f s, overlapd %s, commit %s, seed %d.\n%s\n", r.Started.Format("2006-01-02 15:04 MST"), r.Seconds, r.Version, r.Commit, r.Seed, r.Facts.text())
	writeTable(&b, r.verdictTable())
	writeTable(&b, r.stepTable())
	for _, t := range r.tables() {
		writeTable(&b, t)
	}
	return []byte(b.String())
}

func (r *Report) verdictTable() table {
	t := table{Title: "Wanted and found", Head: []string{"", "what", "found", "wanted"}}
	for _, v := range r.Verdicts {
		t.Rows = append(t.Rows, []string{v.Answer, v.What, v.Got, v.Want})
	}
	return t
}

func (r *Report) stepTable() table {
	t := table{Title: "Steps", Head: []string{"step", "ended", "s", "of s", "why"}}
	for _, s := range r.Steps {
		t.Rows = append(t.Rows, []string{s.Title, s.Status, fmt.Sprintf("%.1f", s.Seconds), fmt.Sprintf("%.0f", s.Budget), s.Error})
	}
	return t
}

// text says in a few words what the machine has.
func (f *Facts) text() string {
	if f == nil {
		return ""
	}
	words := []string{f.Machine, fmt.Sprintf("%.0f GiB of memory", float64(f.MemoryBytes)/(1<<30)), "Linux " + f.Kernel, "ONNX Runtime " + f.ORT}
	if f.GPU != nil {
		words = append(words, fmt.Sprintf("NVIDIA driver %s, for CUDA up to %v", f.GPU.Driver, f.GPU.CUDA))
	}
	if f.GPUFault != "" {
		words = append(words, f.GPUFault)
	}
	return strings.Join(words, "; ") + "."
}

// writeTable writes a table. What would end a cell is written otherwise.
func writeTable(b *strings.Builder, t table) {
	fmt.Fprintf(b, "\n## %s\n\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(b, "%s\n\n", t.Note)
	}
	clean := strings.NewReplacer("|", "/", "\n", " ")
	line := func(cells []string) {
		for _, c := range cells {
			fmt.Fprintf(b, "| %s ", clean.Replace(c))
		}
		b.WriteString("|\n")
	}
	line(t.Head)
	b.WriteString(strings.Repeat("|---", len(t.Head)) + "|\n")
	for _, row := range t.Rows {
		line(row)
	}
}
