package planning

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/planning/selection"
)

// selectionResult is what the command says of policies. Accuracy, that of queries in time,
// violations, the part of queries that are not, and states are those for the highest load.
// Seconds include reading, and Models are those that may run.
type selectionResult struct {
	Accuracy   float64             `json:"accuracy"`
	Violations float64             `json:"violations"`
	States     int                 `json:"states"`
	Seconds    float64             `json:"seconds"`
	Models     int                 `json:"models"`
	LeftOut    []string            `json:"left_out,omitempty"`
	Policies   []*selection.Policy `json:"policies"`
	Note       string              `json:"note,omitempty"`
	Out        string              `json:"out,omitempty"`
	Commit     string              `json:"commit"`
}

// document says what is to be expected of policies. On a page it also draws that over load, and
// what some of the policies choose.
func (r *selectionResult) document(s *selection.Set) *report.Document {
	d := &report.Document{Title: fmt.Sprintf("which of %s runs the next batch", report.Count(len(s.Variants), "variant"))}
	if len(s.Policies) == 1 {
		d.Text("expected accuracy %.3f of queries in time, and %.4f %% late; %s, %d states, in %.2f s",
			r.Accuracy, 100*r.Violations, report.Count(r.Models, "model"), r.States, r.Seconds)
	} else {
		d.Text("%s, each of %d states, for %s, in %.2f s", report.Count(len(s.Policies), "policy", "policies"), r.States, report.Count(r.Models, "model"), r.Seconds)
	}
	if r.Note != "" {
		d.Text("%s", r.Note)
	}
	// All policies choose from the same variants.
	t := report.NewTable("model", "accuracy", "ms alone")
	for _, v := range s.Policies[0].Variants[:min(r.Models, mostRows)] {
		t.Rowf("%s\t%.3f\t%s", v.Name, v.Accuracy, stats.Digits(4, v.Latency[0]))
	}
	d.Table(t)
	// Interpolated variants may be a thousand.
	if more := r.Models - mostRows; more > 0 {
		d.Text("%d more models are not shown", more)
	}
	d.List(r.LeftOut[:min(len(r.LeftOut), mostRows)]...)
	if len(s.Policies) > 1 {
		overLoad(d, s)
	}
	// A page with a chart of each load would show the same again and again.
	const panels = 6
	shown := min(len(s.Policies), panels)
	for i := range shown {
		p := s.Policies[i*(len(s.Policies)-1)/max(shown-1, 1)]
		d.Chart(&report.Chart{
			Caption: fmt.Sprintf("variant of the next batch at %s queries a second: accuracy %.2f, %.2f %% late", stats.Digits(4, p.Rate), p.Accuracy, 100*p.Violations),
			X:       "queued queries", Y: "ms left for the first query", Series: choices(s, p),
		})
	}
	return d
}

// overLoad adds what is to be expected at each load.
func overLoad(d *report.Document, s *selection.Set) {
	t := report.NewTable("queries a second", "accuracy", "late %")
	// Two charts, since accuracy and violations have scales of their own.
	accuracy := report.Series{Name: "accuracy of queries in time"}
	late := report.Series{Name: "queries that are late or dropped", Color: 1}
	for _, p := range s.Policies {
		t.Rowf("%s\t%.3f\t%.4f", stats.Digits(4, p.Rate), p.Accuracy, 100*p.Violations)
		accuracy.X, accuracy.Y = append(accuracy.X, p.Rate), append(accuracy.Y, p.Accuracy)
		late.X, late.Y = append(late.X, p.Rate), append(late.Y, 100*p.Violations)
	}
	d.Table(t)
	d.Chart(&report.Chart{Caption: "accuracy over load", X: "queries a second", Y: "accuracy", Series: []report.Series{accuracy}})
	d.Chart(&report.Chart{Caption: "violations over load", X: "queries a second", Y: "percent", Series: []report.Series{late}})
}

// choices returns a series for each variant that a policy chooses, with boxes where it does,
// and one for queries that are dropped.
func choices(s *selection.Set, p *selection.Policy) (series []report.Series) {
	// The time left is drawn in steps, finer than a pixel of the chart.
	const steps = 200
	// Colours are of the palette, in an order in which neighbours differ.
	colors := []int{0, 1, 2, 3, 7, 5, 10, 12, 8, 11}
	for i, v := range p.Variants {
		series = append(series, report.Series{Name: v.Name, Color: colors[i%len(colors)]})
	}
	const grey = 6
	series = append(series, report.Series{Name: "dropped", Color: grey})
	// What is chosen is looked up in the middle of a step, so that a limit between two is on neither.
	at := func(n, step int) int {
		v, _ := p.Choose(n, s.Target*(float64(step)+0.5)/steps)
		if v == selection.Dropped {
			return len(series) - 1
		}
		return v
	}
	for n := 1; n <= s.Queue; n++ {
		for from, to := 0, 1; to <= steps; to++ {
			if v := at(n, from); to == steps || at(n, to) != v {
				series[v].Boxes = append(series[v].Boxes, [4]float64{float64(n) - 0.5, s.Target * float64(from) / steps, float64(n) + 0.5, s.Target * float64(to) / steps})
				from = to
			}
		}
	}
	return slices.DeleteFunc(series, func(s report.Series) bool { return s.Boxes == nil })
}
