package watching

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	"charm.land/lipgloss/v2"

	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

const (
	// A name has leastNames characters where the terminal is narrow, and mostNames where it is wide.
	leastNames = 4
	mostNames  = 32

	// historyText is that of the text before a history.
	historyText = 46
	// fixedLines belong to no service.
	fixedLines = 8
)

// hues are the colours of the terminal in which services are drawn in turn.
var hues = []lipgloss.ANSIColor{4, 3, 2, 5, 6, 1}

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
	// Colours are the terminal's own, so that they suit its background.
	plain := lipgloss.NewStyle()
	faint := plain.Faint(true)
	line(plain, v.title())
	// The help takes the place of the view. What happens meanwhile is shown after it.
	if v.help && v.height > 0 {
		for _, text := range explain() {
			line(plain, text)
		}
		return strings.Join(lines[:min(len(lines), v.height)], "\n")
	}
	line(plain, v.summary())
	for _, text := range v.history() {
		line(plain, text)
	}
	rows := v.services()
	all := len(rows)
	// A service takes two lines, one in the table and one in the time line.
	if v.height > 0 {
		room := v.height - fixedLines
		if all > room/2 {
			room-- // to say how many more there are
		}
		rows = rows[:min(all, max(1, room/2))]
	}
	// Names have one width in the table and in the time line, so that a row is found in both.
	names := v.nameWidth(rows)
	table := v.table(rows, names)
	line(faint, table[0])
	for i := range rows {
		line(mood(rows[i].recent), table[i+1])
	}
	if n := all - len(rows); n > 0 {
		line(plain, fmt.Sprintf("and %d more: enlarge the terminal, or scroll", n))
	}
	legend, device, lanes := v.picture(max(1, v.width-names-1))
	line(faint, legend)
	line(plain, name("device", names)+" "+device)
	for i := range rows {
		line(plain.Foreground(hues[rows[i].lane%len(hues)]), name(rows[i].recent.Name, names)+" "+lanes[rows[i].lane])
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
	// Columns are left out until the lines fit: how wide they are depends on the values.
	for rank := len(serviceColumns) - 1; ; rank-- {
		cells := make([][]string, len(rows)+1) // of each line
		for i, c := range serviceColumns {
			if c.rank > rank {
				continue
			}
			// A mark shows by which column the rows are sorted, in the place of a blank.
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
		// Names and p99 stay, however narrow it is; the rest is cut off.
		if !wide || rank == 1 {
			return lines
		}
	}
}

// tableLines returns the lines of a table, which here are styled one by one.
func tableLines(t *report.Table) []string {
	var b strings.Builder
	_ = t.WriteText(&b) // to memory
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// nameWidth returns the width of names: of the longest, unless that takes too much.
func (v *view) nameWidth(rows []serviceRow) int {
	longest := len("SERVICE▾")
	for i := range rows {
		longest = max(longest, lipgloss.Width(rows[i].recent.Name))
	}
	return max(leastNames, min(longest, mostNames, v.width/4))
}

// title is the state of the view, where that is not usual, and the device.
func (v *view) title() string {
	// An emulated device is late where the host is busy, and then all latencies mean less.
	text := "overlapd on " + v.now.Status.Overview.Device
	if v.now.Status.Overview.Emulated {
		late := 0.0
		if v.since() > 0 {
			late = (v.now.Status.Overview.HostLateSeconds - v.before.Status.Overview.HostLateSeconds) / v.since().Seconds() / float64(max(1, len(v.now.Status.Overview.Pool)))
		}
		text += ", " + emulatedNote(late)
	}
	// What makes the view stand still comes first, so that it is not cut off.
	switch {
	case v.lost != nil:
		return "CONNECTION LOST: " + v.lost.Error() + "   " + text
	case v.held:
		return "PAUSED, p resumes   " + text
	}
	return text
}

// summary is the line of the whole daemon. Rates are those since the look before.
func (v *view) summary() string {
	o, was := &v.now.Status.Overview, &v.before.Status.Overview
	// A single look has no rates.
	busy := "-"
	if v.since() > 0 {
		busy = fmt.Sprintf("%.0f %%", 100*min(1, (o.BusySeconds-was.BusySeconds)/v.since().Seconds()/float64(max(1, len(o.Pool)))))
	}
	text := fmt.Sprintf("up %s  policy %s  rounds/s %s  busy %s  demand %.2f/%d  predictor %s", brief(math.Floor(o.UpSeconds)),
		o.Policy, report.OrDash("%.0f", v.perSecond(o.Rounds, was.Rounds)), busy, o.Load.DevicesDemanded, len(o.Load.Devices), o.Predictor.Phase)
	if f := o.Predictor.File; f != nil {
		text += fmt.Sprintf(", error %.1f %%", f.MAPE)
	}
	if models := modelsText(o); models != "" {
		text += "  " + models
	}
	return text
}

// history shows what running queries together saves, and the queries that are lost, with
// what they were in the last twenty minutes.
func (v *view) history() []string {
	h, g := &v.now.Status.History, &v.now.Status.Overview.Gain
	lost := lost(h)
	lostNow := 0.0
	if n := len(lost); n > 1 { // the last step is not over
		lostNow = lost[n-2] / h.Step.Seconds()
	}
	draw := func(text string, values []float64) string {
		text = name(text, min(v.width*3/5, historyText))
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

// picture returns a time line of rounds, in which a character is a piece of time: a row
// for the device and one for each service.
func (v *view) picture(columns int) (legend, device string, services []string) {
	p := &v.now.Timeline
	rounds := p.Rounds
	// Without load a new user would see nothing, and not know why.
	if len(rounds) == 0 {
		return "no group has run yet: put load on the daemon with overlapd bench serve", "", make([]string, len(p.Services))
	}
	// A column is as long as a third of a round, so that most rounds can be told from the next.
	each := columnTime(rounds)
	end := rounds[len(rounds)-1].End
	begin := end - each*time.Duration(columns)
	rows := make([][]rune, len(p.Services)+1) // the last one is of the device
	// Each row is a piece of text, in which later rounds may overwrite the end of earlier ones.
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
		// On an emulated device the host's own delay is no fault of the prediction.
		if r.Bound > 0 && r.Took-r.Late > r.Bound {
			fill(rows[len(p.Services)], '!')
		} else {
			fill(rows[len(p.Services)], '=')
		}
		for j := range r.Spans {
			s := &r.Spans[j]
			fill(rows[s.Service], '#')
			// A deadline is marked where its batch ends, unless something runs there: the mark would hide it.
			if limit := s.Deadline - begin; limit > 0 && s.End == s.Of && rows[s.Service][min(columns-1, int(limit/each))] == '.' && limit < each*time.Duration(columns) {
				rows[s.Service][int(limit/each)] = 'v'
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
