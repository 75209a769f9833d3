package reproduce

import (
	"time"

	"github.com/overlapd/overlapd/report"
)

// Timing is what differs from run to run.
type Timing struct {
	Began     time.Time      `json:"began"`
	Seconds   float64        `json:"seconds"`
	Decisions []DecisionTime `json:"decisions,omitempty"`
}

// Document returns it for a terminal.
func (t *Timing) Document() *report.Document {
	d := &report.Document{}
	if len(t.Decisions) > 0 {
		d.Heading("what a decision took in the middle, on this machine")
		table := report.NewTable("policy", "ways", "µs")
		for _, k := range t.Decisions {
			table.Rowf("%s\t%d\t%.1f", k.Policy, k.Ways, k.Median)
		}
		d.Table(table)
	}
	d.Heading("%.0f s in all", t.Seconds)
	return d
}
