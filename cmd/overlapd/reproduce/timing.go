package reproduce

import (
	"fmt"
	"io"
	"time"
)

// Timing is what differs from run to run.
type Timing struct {
	Began     time.Time      `json:"began"`
	Seconds   float64        `json:"seconds"`
	Decisions []DecisionTime `json:"decisions,omitempty"`
}

// WriteText writes it for a terminal.
func (t *Timing) WriteText(w io.Writer) error {
	for i, d := range t.Decisions {
		if i == 0 {
			fmt.Fprintf(w, "\nwhat a decision took in the middle, on this machine:\n")
		}
		fmt.Fprintf(w, "  %-18s %2d ways  %8.1f µs\n", d.Policy, d.Ways, d.Median)
	}
	_, err := fmt.Fprintf(w, "\n%.0f s in all\n", t.Seconds)
	return err
}
