package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

// serviceColumns are the columns of services: the text of a cell, and what they are
// sorted by, the greatest first. Rank says which are left out where the terminal is
// narrow: those of the highest rank first. A heading is as wide as its column is at
// least, so that columns stand still while values change.
var serviceColumns = []struct {
	head    string
	rank    int
	meaning string
	cell    func(*serviceRow) (text string, order float64)
}{
	{"SERVICE", 0, "in the order of the configuration", func(r *serviceRow) (string, float64) { return r.lately.Name, -float64(r.lane) }},
	{"STATE   ", 4, "ready, overrun by an operator that does not end, loading, or failed", func(r *serviceRow) (string, float64) { return r.state, float64(len(r.state)) }},
	{"TARGET", 6, "latency target", func(r *serviceRow) (string, float64) { return latency(r.lately.Target) }},
	{"     P50", 5, "latency of the last 256 queries", func(r *serviceRow) (string, float64) { return latency(r.lately.P50) }},
	{"     P99", 1, "latency of the same; red if above the target", func(r *serviceRow) (string, float64) { return latency(r.lately.P99) }},
	{" MISSED", 2, "percentage of the same that was late or not answered", func(r *serviceRow) (string, float64) {
		return missedOf(r.lately), float64(r.lately.Missed) / float64(max(1, r.lately.Ended))
	}},
	{"HEADROOM", 9, "time left before the deadline at p99, in % of the target, in the last minute", func(r *serviceRow) (string, float64) { return percentOf(r.headroom), -r.headroom }},
	{"QUEUE", 3, "queued queries", func(r *serviceRow) (string, float64) { return count(r.service.Queued) }},
	{"DONE/S", 7, "queries answered per second", func(r *serviceRow) (string, float64) { return report.OrDash("%.0f", r.rate), r.rate }},
	{"  MEMORY", 10, "memory of its worker process", func(r *serviceRow) (string, float64) { return memoryOf(&r.service), float64(r.service.ResidentBytes) }},
	{"LATELY      ", 11, "queries answered in time, a bar for five seconds, newest on the right", func(r *serviceRow) (string, float64) { return sparkline(r.inTime, latelySteps), stats.Mean(r.inTime) }},
	{"  LOST", 8, "queries late or not answered since the start", func(r *serviceRow) (string, float64) { return count(losses(&r.service)) }},
	{"WHY", 12, "reasons for lost queries, most frequent first", func(r *serviceRow) (string, float64) { return whyLost(&r.service), float64(losses(&r.service)) }},
}

func latency(d time.Duration) (string, float64) { return short(d), float64(d) }

func count[N int | uint64](n N) (string, float64) { return fmt.Sprint(n), float64(n) }

const (
	leastNames = 4  // characters of a name, where the terminal is narrow
	mostNames  = 32 // where it is wide

	latelyWidth = 46 // of the text before a history
	fixedLines  = 8  // belong to no service
)

// hues are the colours of the terminal in which services are drawn in turn.
var hues = []lipgloss.ANSIColor{4, 3, 2, 5, 6, 1}

func (v *view) View() tea.View {
	drawn := tea.NewView(v.render())
	drawn.AltScreen, drawn.WindowTitle = true, "overlapd top"
	return drawn
}

// render draws the view, as many services of it as the height has lines for. Without a
// height it draws all, and no keys.
func (v *view) render() string {
	var lines []string
	line := func(style lipgloss.Style, text string) {
		if text = clip(text, v.width); v.height > 0 {
			text = style.Render(text)
		}
		lines = append(lines, text)
	}
	plain := lipgloss.NewStyle()
	faint := plain.Faint(true)
	line(plain, v.title())
	if v.help && v.height > 0 {
		for _, text := range explain() {
			line(plain, text)
		}
		return strings.Join(lines[:min(len(lines), v.height)], "\n")
	}
	line(plain, v.summary())
	for _, text := range v.lately() {
		line(plain, text)
	}
	rows := v.services()
	all := len(rows)
	if v.height > 0 {
		room := v.height - fixedLines
		if all > room/2 {
			room-- // to say how many more there are
		}
		rows = rows[:min(all, max(1, room/2))]
	}
	names := v.nameWidth(rows)
	table := v.table(rows, names)
	line(faint, table[0])
	for i := range rows {
		line(mood(rows[i].lately), table[i+1])
	}
	if n := all - len(rows); n > 0 {
		line(plain, fmt.Sprintf("and %d more: enlarge the terminal, or scroll", n))
	}
	legend, device, lanes := v.picture(max(1, v.width-names-1))
	line(faint, legend)
	line(plain, name("device", names)+" "+device)
	for i := range rows {
		line(plain.Foreground(hues[rows[i].lane%len(hues)]), name(rows[i].lately.Name, names)+" "+lanes[rows[i].lane])
	}
	if v.height > 0 { // the keys have the last line, whatever else there is
		lines = append(lines[:min(len(lines), v.height-1)], plain.MaxWidth(v.width).Render(keyLine(v.width)))
	}
	return strings.Join(lines, "\n")
}

// keyLine lists as many keys as there is room for.
func keyLine(width int) string {
	h := help.New()
	h.SetWidth(width)
	var bindings []key.Binding
	for _, k := range keys {
		bindings = append(bindings, k.Binding)
	}
	return h.ShortHelpView(bindings)
}

// explain lists all keys, and what the columns mean.
func explain() []string {
	t := report.NewTable("", "")
	for _, k := range keys {
		t.Row(strings.Join(k.Keys(), ", "), k.Help().Desc)
	}
	for _, c := range serviceColumns {
		t.Row(strings.TrimSpace(c.head), c.meaning)
	}
	return tableLines(t)
}

// table returns the lines of the services, the heading first, in as many columns as
// the width has room for.
func (v *view) table(rows []serviceRow, names int) (lines []string) {
	for rank := len(serviceColumns) - 1; ; rank-- {
		cells := make([][]string, len(rows)+1) // of each line
		for i, c := range serviceColumns {
			if c.rank > rank {
				continue
			}
			if i == v.sort && v.height > 0 {
				c.head = strings.Replace(c.head, " ", "", 1) + map[bool]string{false: "▾", true: "▴"}[v.reverse]
			}
			cells[0] = append(cells[0], c.head)
			for j := range rows {
				text, _ := c.cell(&rows[j])
				cells[j+1] = append(cells[j+1], text)
			}
		}
		for _, line := range cells {
			line[0] = name(line[0], names)
		}
		t := report.NewTable(cells[0]...)
		for _, line := range cells[1:] {
			t.Row(line...)
		}
		lines = tableLines(t)
		wide := slices.ContainsFunc(lines, func(l string) bool { return lipgloss.Width(l) > v.width })
		if !wide || rank == 1 {
			return lines
		}
	}
}

func tableLines(t *report.Table) []string {
	var b strings.Builder
	_ = t.WriteText(&b) // to memory
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// nameWidth returns the width of names: of the longest, unless that takes too much.
func (v *view) nameWidth(rows []serviceRow) int {
	longest := len("SERVICE▾")
	for i := range rows {
		longest = max(longest, lipgloss.Width(rows[i].lately.Name))
	}
	return max(leastNames, min(longest, mostNames, v.width/4))
}

// title is the state of the view, where that is not usual, and the device.
func (v *view) title() string {
	text := "overlapd on " + v.now.Status.Overview.Device
	if v.now.Status.Overview.Emulated {
		late := 0.0
		if v.since() > 0 {
			late = (v.now.Status.Overview.HostLateSeconds - v.before.Status.Overview.HostLateSeconds) / v.since().Seconds() / float64(max(1, len(v.now.Status.Overview.Pool)))
		}
		text += ", " + emulatedNote(late)
	}
	switch {
	case v.lost != nil:
		return "CONNECTION LOST: " + v.lost.Error() + "   " + text
	case v.held:
		return "PAUSED, p resumes   " + text
	}
	return text
}

func (v *view) summary() string {
	o, was := &v.now.Status.Overview, &v.before.Status.Overview
	busy := "-"
	if v.since() > 0 {
		busy = fmt.Sprintf("%.0f %%", 100*min(1, (o.BusySeconds-was.BusySeconds)/v.since().Seconds()/float64(max(1, len(o.Pool)))))
	}
	text := fmt.Sprintf("up %s  policy %s  rounds/s %s  busy %s  demand %.2f/%d  predictor %s", brief(math.Floor(o.UpSeconds)),
		o.Policy, report.OrDash("%.0f", v.perSecond(o.Rounds, was.Rounds)), busy, o.Load.DevicesDemanded, len(o.Load.Devices), o.Predictor.Phase)
	if f := o.Predictor.File; f != nil {
		text += fmt.Sprintf(", error %.1f %%", f.MAPE)
	}
	return text
}

// lately shows what running queries together saves, and the queries that are lost, with
// what they were in the last twenty minutes.
func (v *view) lately() []string {
	h, g := &v.now.Status.History, &v.now.Status.Overview.Gain
	lost := lost(h)
	lostNow := 0.0
	if n := len(lost); n > 1 { // the last step is not over
		lostNow = lost[n-2] / h.Step.Seconds()
	}
	draw := func(text string, values []float64) string {
		text = name(text, min(v.width*3/5, latelyWidth))
		return text + " " + sparkline(values, max(1, min(historyWidth, v.width-lipgloss.Width(text)-1)))
	}
	return []string{
		draw(fmt.Sprintf("saved %.2f s/s: overlap %.2f, batch %.2f", unsigned(g.OverlapNow+g.MergeNow), unsigned(g.OverlapNow), unsigned(g.MergeNow)), gained(h)),
		draw(fmt.Sprintf("lost %.1f queries/s", lostNow), lost),
	}
}

// unsigned rounds to hundredths, of which none is less than nothing by its sign alone.
func unsigned(x float64) float64 { return math.Round(100*x)/100 + 0 }

// mood is red for a p99 over its target, yellow for a query that was missed.
func mood(s *timeline.Service) lipgloss.Style {
	switch style := lipgloss.NewStyle(); {
	case s.P99 > s.Target:
		return style.Foreground(lipgloss.Red)
	case s.Missed > 0:
		return style.Foreground(lipgloss.Yellow)
	default:
		return style
	}
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

// picture returns a time line of rounds, in which a character is a piece of time: a row
// for the device and one for each service.
func (v *view) picture(columns int) (legend, device string, services []string) {
	p := &v.now.Timeline
	rounds := p.Rounds
	if len(rounds) == 0 {
		return "no group has run yet: put load on the daemon with overlapd bench serve", "", make([]string, len(p.Services))
	}
	each := columnTime(rounds)
	end := rounds[len(rounds)-1].End
	begin := end - each*time.Duration(columns)
	rows := make([][]rune, len(p.Services)+1) // the last one is of the device
	for i := range rows {
		rows[i] = slices.Repeat([]rune{'.'}, columns)
	}
	for i := range rounds {
		r := &rounds[i]
		fill := func(row []rune, mark rune) {
			for x := max(0, r.Start-begin) / each; x <= (r.End-begin-1)/each && r.End > begin; x++ {
				row[x] = mark
			}
		}
		if r.Bound > 0 && r.Took-r.Late > r.Bound {
			fill(rows[len(p.Services)], '!')
		} else {
			fill(rows[len(p.Services)], '=')
		}
		for j := range r.Spans {
			s := &r.Spans[j]
			fill(rows[s.Service], '#')
			if due := s.Deadline - begin; due > 0 && s.End == s.Of && rows[s.Service][min(columns-1, int(due/each))] == '.' && due < each*time.Duration(columns) {
				rows[s.Service][int(due/each)] = 'v'
			}
		}
	}
	for _, row := range rows[:len(p.Services)] {
		services = append(services, string(row))
	}
	return fmt.Sprintf("each column %v: # running, v deadline, ! longer than predicted", each), string(rows[len(p.Services)]), services
}

// columnTime is 1, 2 or 5 times a power of ten: the median of rounds has about three.
func columnTime(rounds []timeline.Round) time.Duration {
	var took []time.Duration
	for _, r := range rounds[max(0, len(rounds)-50):] {
		took = append(took, r.End-r.Start)
	}
	third := max(float64(stats.Median(took))/3, float64(10*time.Microsecond))
	power := math.Pow(10, math.Floor(math.Log10(third)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= third*0.999 {
			return time.Duration(math.Round(f * power))
		}
	}
	return time.Duration(math.Round(10 * power))
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
