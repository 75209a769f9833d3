package watching

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

// Numbers and words that status and top have in common, so that one can be compared with the other.

// brief formats seconds for people: 90 as 1m30s, 120 as 2m, 0.0123 as 12ms.
func brief(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Second:
		d = d.Round(time.Second)
	case d >= time.Millisecond:
		d = d.Round(time.Millisecond)
	default:
		d = d.Round(time.Microsecond)
	}
	text := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if whole, ok := strings.CutSuffix(text, unit); ok {
			text = whole + unit[:1]
		}
	}
	return text
}

// short formats a latency with three digits, and none as a dash.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 100*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// percentOf formats a share.
func percentOf(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// missedOf formats the share of the last queries that were late or unanswered.
func missedOf(s *timeline.Service) string {
	if s.Ended == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(s.Missed)/float64(s.Ended))
}

// memoryOf formats the memory of a service's worker.
func memoryOf(s *status.Service) string {
	return report.OrDash("%.0f MiB", float64(cmp.Or(s.MemoryBytes, s.ResidentBytes))/(1<<20))
}

// stateOf names the state of a service: ready, overrun while an operator that does
// not end keeps it, loading and how far, failed, or where its model is.
func stateOf(o *status.Status, s *status.Service) string {
	i := slices.IndexFunc(o.Loading, func(l status.Loading) bool { return l.Service == s.Name })
	switch {
	case s.Overrun:
		return "overrun"
	case s.Ready:
		return "ready"
	case i >= 0 && o.Loading[i].Total > 0:
		return fmt.Sprintf("loading %.0f %%", 100*float64(o.Loading[i].Done)/float64(o.Loading[i].Total))
	case i < 0 && s.Fault != "":
		return "failed"
	case i < 0 && s.State != "":
		return s.State
	}
	return "loading"
}

// modelsText says where the models are that are not all in memory, and how much of it they take, "" if all
// are loaded at the start.
func modelsText(o *status.Status) string {
	if o.Memory == nil {
		return ""
	}
	counts := map[string]int{}
	for i := range o.Services {
		counts[stateOf(o, &o.Services[i])]++
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	return fmt.Sprintf("models: %s; %d of %d MiB in use", strings.Join(parts, ", "), o.Memory.UsedBytes>>20, o.Memory.LimitBytes>>20)
}

// losses returns how many queries of a service were lost since the start: late or
// without an answer.
func losses(s *status.Service) uint64 {
	return s.Late + stats.Sum(s.Dropped) + stats.Sum(s.Failed) + stats.Sum(s.Refused)
}

// whyLost lists why queries of a service were lost.
func whyLost(s *status.Service) string {
	counts := map[string]uint64{"late": s.Late}
	for _, by := range []map[string]uint64{s.Refused, s.Dropped, s.Failed} {
		for reason, n := range by {
			counts[reason] += n
		}
	}
	return report.Frequent(counts)
}

// emulatedNote says what an emulated device is not, and that this host is late for such
// a share of the time, if that matters.
func emulatedNote(late float64) string {
	const matters = 0.05
	if late < matters {
		return "nothing is computed"
	}
	return fmt.Sprintf("nothing is computed, and this host was late %s of the time", percentOf(late))
}

// loadingText says how long a service has been loading, and how far it is.
func loadingText(l *status.Loading) string {
	part := ""
	if l.Total > 0 {
		part = fmt.Sprintf(" %.0f %%", 100*float64(l.Done)/float64(l.Total))
	}
	return fmt.Sprintf("%s has been loading its model (%s%s) for %s", l.Service, l.Phase, part, brief(l.LoadSeconds))
}

// measuredText says how far measuring is.
func measuredText(m *status.Progress) string {
	text := fmt.Sprintf("measured %d of %d", m.Done, m.Total)
	if m.LeftSeconds > 0 {
		text += fmt.Sprintf(", %s left for all", brief(m.LeftSeconds))
	}
	return text
}

// gainText says what running queries together saves.
func gainText(o *status.Status) string {
	g := &o.Gain
	return fmt.Sprintf("overlapping and batching save %.2f s of device time per second (overlapping %.2f, batching %.2f), %.1f s since the start",
		g.OverlapNow+g.MergeNow, g.OverlapNow, g.MergeNow, g.OverlapSeconds+g.MergeSeconds)
}

// gpuText says what is known of a GPU. Drivers differ in what they tell, so each part may be missing.
func gpuText(g *gpu.Status) string {
	parts := []string{fmt.Sprintf("%s (%s): %s", g.Device, g.UUID, strings.Join(g.Services, ", "))}
	add := func(known bool, format string, args ...any) {
		if known {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	if m := g.MPS; m != nil {
		add(true, "MPS %s, started %s", m.Phase, report.Count(m.Starts, "time"))
		add(m.Fault != "", "%s", m.Fault)
	}
	add(g.Fault != "", "no readings: %s", g.Fault)
	if s := g.Sample; s != nil {
		add(s.Utilization.Known, "busy %d %% of the time", s.Utilization.Value.GPU)
		add(s.Memory.Known, "%d of %d MiB used", s.Memory.Value.Used>>20, s.Memory.Value.Total>>20)
		add(s.Power.Known && s.PowerLimit.Known, "%.0f of %.0f W", s.Power.Value, s.PowerLimit.Value)
		add(s.Temperature.Known, "%d °C", s.Temperature.Value)
		add(s.SMClock.Known && s.MaxSMClock.Known, "%d of %d MHz", s.SMClock.Value, s.MaxSMClock.Value)
		add(s.ClockReasons.Known && s.ClockReasons.Value.Throttled(), "CLOCK THROTTLED: %s", s.ClockReasons.Value)
	}
	return strings.Join(parts, "; ")
}

// historyWidth is how many bars a history has, each of twenty seconds at the end.
const historyWidth = 60

// gained returns the seconds of device time that were saved in each step of a history.
func gained(h *timeline.History) []float64 {
	sums := make([]float64, len(h.Overlap))
	for i := range sums {
		sums[i] = (h.Overlap[i] + h.Merge[i]).Seconds()
	}
	return sums
}

// lost returns how many queries were lost in each step of a history.
func lost(h *timeline.History) []float64 {
	sums := make([]float64, len(h.InTime))
	for _, counts := range h.Lost {
		for i, n := range counts {
			sums[i] += float64(n)
		}
	}
	return sums
}

// sparkline draws values as at most so many bars between nothing and the greatest.
// Where there are more values, as many that follow each other are added up; the first
// bar may be of fewer.
func sparkline(values []float64, most int) string {
	each := (len(values) + most - 1) / most
	sums := make([]float64, min(len(values), most))
	for i, v := range values {
		sums[len(sums)-1-(len(values)-1-i)/each] += v
	}
	greatest := slices.Max(append(sums, math.SmallestNonzeroFloat64))
	bars := []rune(" ▁▂▃▄▅▆▇█")
	line := make([]rune, len(sums))
	for i, sum := range sums {
		line[i] = bars[int(math.Ceil(max(0, sum)/greatest*float64(len(bars)-1)))]
	}
	return string(line)
}

// name pads or cuts a name to a width.
func name(s string, width int) string { return fmt.Sprintf("%-*s", width, clip(s, width)) }

// clip cuts a text to a width and replaces characters that control a terminal.
func clip(s string, width int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s))
	if width <= 0 {
		return ""
	}
	if len(runes) > width {
		return string(runes[:width-1]) + "~"
	}
	return string(runes)
}
