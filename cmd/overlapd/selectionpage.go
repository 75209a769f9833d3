package main

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/report"
	"github.com/overlapd/overlapd/selection"
)

// page draws policies: accuracy and violations over load, and what some of them choose.
func (r *selectionResult) page(s *selection.Set) *report.Document {
	d := r.document(s)
	d.Title = fmt.Sprintf("which of %s runs the next batch", report.Count(len(s.Variants), "variant"))
	if len(s.Policies) > 1 {
		load, accuracy, late := []float64{}, []float64{}, []float64{}
		for _, p := range s.Policies {
			load, accuracy, late = append(load, p.Rate), append(accuracy, p.Accuracy), append(late, 100*p.Violations)
		}
		d.Heading("load: what is to be expected")
		lines := func(caption, y string, values []float64) {
			d.Chart(&report.Chart{Caption: caption, X: "queries a second", Y: y, Series: []report.Series{{Name: "expected", X: load, Y: values}}})
		}
		lines("accuracy of queries in time", "accuracy", accuracy)
		lines("queries that are late or dropped", "percent", late)
	}
	d.Heading("choices: which variant runs, by queries that wait and time left")
	const panels = 6
	shown := min(len(s.Policies), panels)
	for i := range shown {
		p := s.Policies[i*(len(s.Policies)-1)/max(shown-1, 1)]
		d.Chart(&report.Chart{
			Caption: fmt.Sprintf("%.4g queries a second: accuracy %.2f, %.2f %% late", p.Rate, p.Accuracy, 100*p.Violations),
			X:       "queries that wait", Y: "ms that the first has left", Series: choices(s, p),
		})
	}
	return d
}

// colors are those of the palette that differ most, in an order in which neighbours do.
var colors = []int{0, 1, 2, 3, 7, 5, 10, 12, 8, 11}

// choices returns a series for each variant that a policy chooses, with boxes where it does,
// and one for queries that are dropped.
func choices(s *selection.Set, p *selection.Policy) (series []report.Series) {
	const steps = 200 // of slack
	for i, v := range p.Variants {
		series = append(series, report.Series{Name: v.Name, Color: colors[i%len(colors)]})
	}
	const grey = 6
	series = append(series, report.Series{Name: "dropped", Color: grey})
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
