package advice

import (
	"fmt"
	"strings"

	"github.com/overlapd/overlapd/internal/report"
)

// Limits of what a document shows. The JSON form has everything.
const (
	// maxShownPairs is the number of services up to which the table of pairs is readable.
	maxShownPairs = 24
	maxShownSets  = 60
)

// Document returns the advice as text and tables, including a heat map of the gains of pairs.
func (a *Advice) Document() *report.Document {
	d := &report.Document{Title: "Which services gain by sharing a device"}
	on := ""
	if a.Device != "" {
		on = ", on " + a.Device
	}
	d.Text("%s, %s measured together%s", report.Count(a.Rows, "group"), report.Count(len(a.Sets), "set of models", "sets of models"), on)
	if a.Pools != nil {
		a.Pools.show(d)
	} else {
		a.showSolo(d)
		a.showSets(d)
		a.showPairs(d)
		d.Heading("Should not share a device")
		d.List(a.badPairs()...)
		a.showDivision(d)
		a.showSplits(d)
	}
	d.Heading("To be measured next")
	var next []string
	for _, n := range a.Next {
		next = append(next, fmt.Sprintf("%s + %s: %s", n.Models[0], n.Models[1], n.Reason))
	}
	d.List(orElse(next, "nothing: the services on each device were measured together")...)
	if a.Pools == nil {
		a.showCost(d)
	}
	return d
}

// orElse returns list, or a list of the item none if it is empty.
func orElse(list []string, none string) []string {
	if len(list) == 0 {
		return []string{none}
	}
	return list
}

// showSolo shows the sources of the isolated latencies from which gains are computed.
func (a *Advice) showSolo(d *report.Document) {
	counts := map[string]int{}
	for _, s := range a.Solo {
		counts[s.Source]++
	}
	d.Heading("Isolated latencies of %s", report.Count(len(a.Solo), "model and batch size", "models and batch sizes"))
	for _, s := range []struct {
		source string
		means  string
	}{
		{soloGiven, "from the given file, divided among operators as measured"},
		{soloMeasured, "measured: spans that ran alone, fitted together with larger groups"},
		{SoloProfiled, "the sum of the latencies of their operators"},
		{SoloInferred, "inferred from groups of several spans"},
	} {
		if n := counts[s.source]; n > 0 {
			d.List(fmt.Sprintf("%d %s", n, s.means))
		}
	}
}

// showSets shows the gains of the models that were measured together.
func (a *Advice) showSets(d *report.Document) {
	d.Heading("Models measured together")
	if len(a.Sets) == 0 {
		d.Text("No two models were measured together.")
		return
	}
	d.Text("The gain is the sum of isolated latencies over the group's latency. Above 1, overlapping pays.")
	t := report.NewTable("MODELS", "GROUPS", "GAIN", "P10", "MEDIAN", "P90", "PAYS", "HIDDEN", "NOISE", "VERDICT")
	for _, s := range a.Sets[:min(len(a.Sets), maxShownSets)] {
		t.Rowf("%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f %%\t%.0f %%\t%.0f %%\t%s", s.name(), s.Groups, s.Gain,
			s.P10, s.Median, s.P90, 100*s.Pays, 100*s.Hidden, 100*s.Noise, s.Verdict)
	}
	d.Table(t)
	if more := len(a.Sets) - maxShownSets; more > 0 {
		d.Text("and %d more", more)
	}
}

// showPairs shows the gain of every two services as a heat map.
func (a *Advice) showPairs(d *report.Document) {
	n := len(a.Services)
	// A larger table would not fit on a page or a terminal.
	if n < 2 || n > maxShownPairs {
		return
	}
	d.Heading("Gain of two services (~ estimated, ! should not share a device)")
	head := []string{""}
	for i := range n {
		head = append(head, fmt.Sprint(i+1))
	}
	t := report.NewTable(head...)
	estimated := false
	for i, name := range a.Services {
		row := []string{fmt.Sprintf("%d %s", i+1, name)}
		for j, g := range a.Pairs[i] {
			estimated = estimated || i != j && !g.Measured
			row = append(row, g.cell(i == j))
		}
		t.Row(row...)
		for j, g := range a.Pairs[i] {
			if i != j {
				t.Paint(j+1, g.color())
			}
		}
	}
	d.Table(t)
	if estimated {
		d.Text("Estimates assume that a model gains equally with all others. They differ from the measured gains by %.0f %%.", 100*a.Off)
	}
}

// cell returns the text of a cell, with marks for bad and estimated pairs.
func (g pairGain) cell(self bool) string {
	if self {
		return "."
	}
	mark := ""
	if !g.Measured {
		mark = "~"
	}
	if g.Bad {
		mark = "!" + mark
	}
	return fmt.Sprintf("%s%.2f", mark, g.Gain)
}

// mostColored is the gain above 1 from which on a cell has its full colour.
const mostColored = 0.6

// color returns the background of a cell: red up to a gain of 1, then increasingly green.
func (g pairGain) color() string {
	if g.Bad || g.Gain <= 1 {
		return "#e9a3a3"
	}
	part := min((g.Gain-1)/mostColored, 1)
	fade := func(to int) int { return 255 - int(part*float64(255-to)) }
	return fmt.Sprintf("#%02x%02x%02x", fade(0x5f), fade(0xb3), fade(0x7a))
}

// badPairs lists the pairs and sets that should not share a device, with the reasons. Estimated
// pairs come last, because their gains are less certain.
func (a *Advice) badPairs() (list []string) {
	for i := range a.Sets {
		if s := &a.Sets[i]; s.Bad() {
			list = append(list, s.name()+": "+s.Reason())
		}
	}
	for i, row := range a.Pairs {
		for j, g := range row[:i] {
			if g.Bad && !g.Measured {
				list = append(list, fmt.Sprintf("%s + %s: no gain is expected, given their gains with others", a.Services[j], a.Services[i]))
			}
		}
	}
	return orElse(list, "none")
}

// showDivision shows the services of each device, and the bad pairs that could not be kept apart.
func (a *Advice) showDivision(d *report.Document) {
	v := &a.Division
	how := "optimal"
	if !v.Exact {
		how = "found by exchanging services"
	}
	d.Heading("Division into groups of at most %d, %s", v.Size, how)
	t := report.NewTable("DEVICE", "SERVICES", "GAIN")
	for i, s := range v.Devices {
		t.Rowf("device %d\t%s\t%s", i+1, strings.Join(s.Services, ", "), s.note())
	}
	d.Table(t)
	// Even the best division may have bad pairs, so say how many devices would avoid them.
	unavoidable := "no division without such a pair was found"
	if v.Enough > 0 {
		unavoidable = fmt.Sprintf("keeping such services apart takes %d devices", v.Enough)
	}
	for _, b := range v.Bad {
		d.List(fmt.Sprintf("%s and %s still share a device: %s", b[0], b[1], unavoidable))
	}
}

// note describes the expected gain and the load of a device.
func (s *deviceShare) note() string {
	notes := []string{"alone"}
	if len(s.Services) > 1 {
		how := map[string]string{basisMeasured: "measured", basisPairs: "from its pairs", basisEstimated: "estimated"}
		notes[0] = fmt.Sprintf("gain %.2f, %s", s.Gain, how[s.Basis])
	}
	if s.Busy > 0 {
		notes = append(notes, fmt.Sprintf("busy %.0f %%", 100*s.Busy))
	}
	if s.Busy > 1 {
		notes = append(notes, "overloaded")
	}
	return strings.Join(notes, "; ")
}

// showCost shows what it takes to measure all pairs, and only those that are needed.
func (a *Advice) showCost(d *report.Document) {
	c := &a.Cost
	known := "as here"
	if !c.RepeatsKnown {
		known = "assumed"
	}
	d.Heading("Measuring takes %d groups a pair, %.2f s a group (%d runs, %s)", c.GroupsPerPair, c.SecondsPerGroup, c.Repeats, known)
	t := report.NewTable("", "PAIRS", "GROUPS", "HOURS")
	for _, some := range []struct {
		name string
		cost measuringCost
	}{{"all pairs", c.AllPairs}, {"those that share a device", c.Division}, {"left to be measured", c.Next}} {
		t.Rowf("%s\t%d\t%d\t%.1f", some.name, some.cost.Pairs, some.cost.Groups, some.cost.Hours)
	}
	d.Table(t)
}
