package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/status"
)

// writeGPUs prints the parts of a GPU that services run on, and why services
// were given up.
func writeGPUs(w io.Writer, o *status.Status) {
	for i := range o.GPU {
		fmt.Fprintf(w, "\n%s\n", gpuText(&o.GPU[i]))
	}
	for _, s := range o.Services {
		if s.Fault != "" {
			fmt.Fprintf(w, "\n%s is given up: %s\n", s.Name, s.Fault)
		}
		if s.Cut != nil {
			fmt.Fprintf(w, "\n%s is cut into %d operators: %s\n", s.Name, s.Cut.Operators, s.Cut.Reason)
		}
	}
}

// gpuText says how a part stands, as far as it tells.
func gpuText(g *gpu.Status) string {
	parts := []string{fmt.Sprintf("%s (%s): %s", g.Device, g.UUID, strings.Join(g.Services, ", "))}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if m := g.MPS; m != nil {
		add("MPS %s, started %d times", m.Phase, m.Starts)
		if m.Fault != "" {
			add("%s", m.Fault)
		}
	}
	if g.Fault != "" {
		add("no readings: %s", g.Fault)
	}
	s := g.Sample
	if s == nil {
		return strings.Join(parts, "; ")
	}
	if u := s.Utilization; u.Known {
		add("busy %d %% of the time", u.Value.GPU)
	}
	if m := s.Memory; m.Known {
		add("%d of %d MiB taken", m.Value.Used>>20, m.Value.Total>>20)
	}
	if s.Power.Known && s.PowerLimit.Known {
		add("%.0f of %.0f W", s.Power.Value, s.PowerLimit.Value)
	}
	if s.Temperature.Known {
		add("%d °C", s.Temperature.Value)
	}
	if s.SMClock.Known && s.MaxSMClock.Known {
		add("%d of %d MHz", s.SMClock.Value, s.MaxSMClock.Value)
	}
	if s.ClockReasons.Known && s.ClockReasons.Value.Throttled() {
		add("SLOWED DOWN: %s", s.ClockReasons.Value)
	}
	return strings.Join(parts, "; ")
}
