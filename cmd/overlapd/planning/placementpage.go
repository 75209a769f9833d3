package planning

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/planning"
)

// planResult is what the command says of a plan.
type planResult struct {
	Kind string `json:"kind"`
	// Objective is the least burst tolerance, or of sub-clusters the imbalance, and Bound what no plan has.
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`
	// Seconds are those of reading, search and writing.
	Seconds float64 `json:"seconds"`
	Solver  string  `json:"solver"`
	Note    string  `json:"note,omitempty"`

	// The imbalance factors of Symphony are (max − min)/average, over devices or sub-clusters. Those of
	// other plans are there to compare.
	RateImbalance   float64 `json:"rate_imbalance"`
	MemoryImbalance float64 `json:"memory_imbalance"`

	Models  int    `json:"models"`
	Streams int    `json:"streams"`
	Devices int    `json:"devices"`
	Out     string `json:"out,omitempty"`
	Commit  string `json:"commit"`
}

const (
	// mostRows is of a table on a terminal, where a plan for thousands of devices is of no use.
	mostRows = 40
	// listedModels is how many models a row names.
	listedModels = 8
)

// document says what is to be expected of a plan, and lists the first devices.
func (r *planResult) document(p *planning.Placement) *report.Document {
	d := new(report.Document)
	what := "least burst tolerance %.4g, and no plan has more than %.4g"
	if r.Kind == "partition" {
		what = "imbalance %.4g, and no plan has less than %.4g"
	}
	d.Text("%s, %s: "+what+" (gap %.2f %%); by %s, in %.2f s", report.Count(r.Models, "model"), report.Count(r.Devices, "place"),
		r.Objective, r.Bound, 100*math.Abs(r.Objective-r.Bound)/max(r.Objective, r.Bound, math.SmallestNonzeroFloat64), r.Solver, r.Seconds)
	if r.Note != "" {
		d.Text("%s", r.Note)
	}
	d.Text("(max - min)/average: rate %.4g, memory %.4g", r.RateImbalance, r.MemoryImbalance)
	// More load than the devices sustain is a result, not an error: the plan is still the best there is.
	busiest := slices.MaxFunc(p.Devices, func(a, b planning.Device) int { return cmp.Compare(a.Load, b.Load) })
	if r.Kind != "partition" && busiest.Load > 1.001 {
		d.Text("overloaded: %s has %.3g times the load that its devices sustain; add devices", busiest.Name, busiest.Load)
	}
	// Services know their devices; a table of devices needs it the other way round.
	loaded, memory := map[string][]string{}, map[string]float64{}
	for _, s := range p.Services {
		for _, name := range s.Devices {
			loaded[name] = append(loaded[name], s.Name)
			memory[name] += s.Memory + s.Working
		}
	}
	t := report.NewTable("place", "group", "models", "MiB", "load", "which")
	for _, at := range p.Devices[:min(len(p.Devices), mostRows)] {
		names := loaded[at.Name]
		which := strings.Join(names[:min(len(names), listedModels)], ", ")
		if more := len(names) - listedModels; more > 0 {
			which += fmt.Sprintf(" and %d more", more)
		}
		t.Rowf("%s\t%d\t%d\t%.0f\t%.3g\t%s", at.Name, at.Group, len(names), memory[at.Name], at.Load, which)
	}
	d.Table(t)
	if more := len(p.Devices) - mostRows; more > 0 {
		d.Text("%d more devices are not shown; --out writes all of them", more)
	}
	return d
}
