package planning

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/planning"
)

// pipelineResult is what the command says of a plan.
type pipelineResult struct {
	// Objective is the least multiple of its rate that a service gets. No plan exceeds Bound, and the plan
	// of the case has Reference.
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`
	Reference float64 `json:"reference,omitempty"`
	// Seconds are those of reading, search and writing.
	Seconds  float64 `json:"seconds"`
	Solver   string  `json:"solver"`
	Note     string  `json:"note,omitempty"`
	Baseline string  `json:"baseline,omitempty"`
	// Models and Devices count those that have a part in it.
	Models   int              `json:"models"`
	Devices  int              `json:"devices"`
	Services []plannedService `json:"services"`
	Out      string           `json:"out,omitempty"`
	Commit   string           `json:"commit"`
}

// plannedService is what a service gets: the rate that it asks for, and the pipelines that share it.
type plannedService struct {
	Name      string              `json:"name"`
	Rate      float64             `json:"rate"`
	Pipelines []planning.Pipeline `json:"pipelines"`
}

// document says what is to be expected of a plan. On a page it also draws it.
func (r *pipelineResult) document(p *planning.Placement) *report.Document {
	d := &report.Document{Title: "pipelines over " + report.Count(r.Devices, "device")}
	// The gap tells whether a longer search may pay.
	d.Text("%s, %s: each gets at least %.4g times its rate, and no plan gives more than %.4g (gap %.2f %%); by %s, in %.2f s",
		report.Count(r.Models, "model"), report.Count(r.Devices, "device"), r.Objective, r.Bound, 100*(1-r.Objective/r.Bound), r.Solver, r.Seconds)
	if r.Reference > 0 {
		d.Text("the plan of the case has %.4g: this is %.2f %% of it", r.Reference, 100*r.Objective/r.Reference)
	}
	if r.Note != "" {
		d.Text("%s", r.Note)
	}
	t := report.NewTable("service", "pipeline", "requests a second", "batch", "ms", "operators", "class", "devices", "parts", "ms of a batch", "us to move a query")
	for _, s := range p.Services {
		for n, way := range s.Pipelines {
			for i, stage := range way.Stages {
				row := []string{s.Name, strconv.Itoa(n + 1), stats.Digits(4, way.Rate), strconv.Itoa(way.Batch), stats.Digits(3, way.Latency)}
				// What is of the whole pipeline stands in the row of its first stage.
				if i > 0 {
					row = make([]string, len(row))
				}
				t.Row(append(row, fmt.Sprintf("%d to %d", stage.Start, stage.End), stage.Class, fewNames(stage.Devices), strconv.Itoa(stage.Share),
					stats.Digits(3, stage.Time), stats.Digits(3, stage.Move))...)
			}
		}
	}
	d.Table(t)
	r.use(d, p)
	for _, s := range p.Services {
		if len(s.Pipelines) > 0 {
			d.Chart(stagesOverTime(&s))
		}
	}
	return d
}

// fewNames names devices, and counts those of many: the paper's cases have thousands, and the plan's file
// names them all.
func fewNames(names []string) string {
	if names = slices.Compact(slices.Clone(names)); len(names) > listedModels/2 {
		return strconv.Itoa(len(names))
	}
	return strings.Join(names, ", ")
}

// use adds how busy the devices of each class are, and how many idle. Idle devices of one class beside
// busy ones of another say which kind to buy.
func (r *pipelineResult) use(d *report.Document, p *planning.Placement) {
	type use struct {
		devices, idle int
		load          float64
	}
	// In the order of the devices, which is that of the configuration.
	var names []string
	uses := map[string]*use{}
	for _, device := range p.Devices {
		u := uses[device.Class]
		if u == nil {
			u = new(use)
			uses[device.Class] = u
			names = append(names, device.Class)
		}
		u.devices++
		if u.load += device.Load; device.Load == 0 {
			u.idle++
		}
	}
	t := report.NewTable("class", "devices", "without a stage", "busy %")
	for _, name := range names {
		u := uses[name]
		t.Row(name, strconv.Itoa(u.devices), strconv.Itoa(u.idle), fmt.Sprintf("%.1f", 100*u.load/float64(u.devices)))
	}
	d.Table(t)
}

// stagesOverTime draws where a batch is when, with a line for each pipeline: it fills, it
// runs in the stages, and it moves. What of the target is lost to moving shows at a glance.
func stagesOverTime(s *planning.Service) *report.Chart {
	const thick, fills, moves = 0.35, 9, 6
	c := &report.Chart{Caption: fmt.Sprintf("where a batch of %s is when", s.Name), X: "ms since its first query came", Y: "pipeline", Level: 0}
	add := func(name string, color, line int, from, to float64) {
		at := slices.IndexFunc(c.Series, func(s report.Series) bool { return s.Name == name })
		if at < 0 {
			at = len(c.Series)
			c.Series = append(c.Series, report.Series{Name: name, Color: color})
		}
		y := float64(line + 1)
		c.Series[at].Boxes = append(c.Series[at].Boxes, [4]float64{from, y - thick, to, y + thick})
	}
	// A class has one colour in all pipelines. Those of filling and moving are at the end of the palette.
	classes := 0
	colors := map[string]int{}
	// A batch has what the stages and moves leave of the latency to fill.
	for n, way := range s.Pipelines {
		at := way.Latency
		for _, stage := range way.Stages {
			at -= stage.Time + stage.Move*float64(way.Batch)/1000
		}
		add("fills", fills, n, 0, max(at, 0))
		for _, stage := range way.Stages {
			if _, known := colors[stage.Class]; !known {
				colors[stage.Class] = classes
				classes++
			}
			add("on "+cmp.Or(stage.Class, "a device"), colors[stage.Class], n, at, at+stage.Time)
			at += stage.Time
			if moved := stage.Move * float64(way.Batch) / 1000; moved > 0 {
				add("moves", moves, n, at, at+moved)
				at += moved
			}
		}
	}
	return c
}
