package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/planning"
)

type pipelineOptions struct {
	searched
	format, solved, counts string // solved is the case
	devices                string
	stages                 int
	margin, bandwidth      float64
	liveBytes              int64
	shared                 bool
	baseline               string
	report                 string
}

func planPipelineCommand() *cobra.Command {
	o := pipelineOptions{format: "ppipe", stages: 3, margin: 0.4, bandwidth: 40, liveBytes: 1 << 20,
		searched: searched{search: planning.Search{Solver: "none", Limit: time.Minute}}}
	cmd := &cobra.Command{
		Use:   "pipeline",
		Short: "Plan pipelines over devices of different speed",
		Long: `Pipeline divides models among devices of several classes, such as a large and a small
MIG instance, or a fast and a slow GPU (PPipe). A stage of a model's operators runs on
one device, its intermediates move to another, and the next stage runs there. Use it
when some devices are too slow to meet a latency target alone.

The plan lists the pipelines of each service, and the operators, devices and batch size
of each stage. By the measured times, with a margin, all batches meet their targets.
The objective is the least multiple of its rate that a service gets. The printed bound
is what no plan can exceed.

With --config the services and devices are those of a daemon's configuration, which
takes the plan by the key plan. Times are the daemon's measurements on each device (a
running daemon locks its state file), or those of the profiles of emulated devices.
Each service has 1 request/s, unless --data names a CSV file with the columns model
(the service's name) and rate, and optionally slo_ms and memory_mib. Moving
intermediates takes their size over --bandwidth. Give the memory of GPUs in MiB with
--devices left=40960,right=20480 and the column memory_mib.

With --format ppipe, --data is the folder of block times published with the paper, and
--case is one of its authors' plans, whose problem is solved again. The reference is
the objective of that plan. --counts replaces the numbers of devices in its name.

By default each stage of each pipeline has its own devices, as in the paper. With
--shared, stages of a class share devices, one batch after another. The plan then
assumes that batches rarely wait for each other, so give a larger --margin.

--baseline np leaves models whole. --baseline dart-r chains one device of each of two
classes. --report draws when each batch is where.`,
		Example: `  overlapd plan pipeline --config overlapd.toml --out plan.json --report plan.html
  overlapd plan pipeline --config overlapd.toml --data rates.csv --margin 0.2 --stages 2 --bandwidth 100 --out plan.json
  overlapd plan pipeline --format ppipe --data ppipe --case plan_L4-T4_25-75_bw-gbps-10_v4.json --json
  overlapd plan pipeline --format ppipe --data ppipe --case plan_L4-T4_25-75_bw-gbps-10_v4.json --counts 2500,7500 --baseline np`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", o.format, "format of --data with --case: ppipe")
	o.flags(f, "folder of block times, or with --config a CSV file of rates", "how long to search")
	f.StringVar(&o.solved, "case", "", "plan whose problem is solved again")
	f.StringVar(&o.counts, "counts", "", "devices of each class of --case, as in 25,75")
	f.StringVar(&o.devices, "devices", "", "memory of the devices of --config, each NAME=MIB, separated by commas; unlimited by default")
	f.IntVar(&o.stages, "stages", o.stages, "most stages of a pipeline, 1 to 4; with --case the default is that of the case")
	f.Float64Var(&o.margin, "margin", o.margin, "fraction of the target to leave free; with --case the default is that of the case")
	f.Float64Var(&o.bandwidth, "bandwidth", o.bandwidth, "bandwidth between stages in Gbit/s; with --case the default is that of the case")
	f.Int64Var(&o.liveBytes, "live-bytes", o.liveBytes, "bytes of a query between two operators, for models on an emulated device")
	f.BoolVar(&o.shared, "shared", false, "let stages and services share devices, one batch after another")
	f.StringVar(&o.baseline, "baseline", "", "plan to compare with: np or dart-r")
	f.StringVar(&o.report, "report", "", "write a page with charts to this file")
	cmd.MarkFlagsMutuallyExclusive("config", "case")
	return cmd
}

// check refuses options that mean nothing, or nothing together.
func (o *pipelineOptions) check(changed func(string) bool) error {
	for _, name := range []string{"stages", "margin", "bandwidth", "devices", "live-bytes"} {
		if o.solved != "" && changed(name) {
			return fmt.Errorf("--%s applies to --config, and a case has its own: leave it out", name)
		}
	}
	switch {
	case o.config+o.solved == "":
		return errors.New("nothing to plan for: give --config, a daemon's configuration, or --data and --case, a problem of the paper's authors")
	case o.format != "ppipe":
		return fmt.Errorf("--format is %.40q: give ppipe", o.format)
	case o.baseline != "" && o.shared:
		return errors.New("--shared and --baseline cannot be used together: leave one of them out")
	case o.baseline != "" && o.baseline != "np" && o.baseline != "dart-r":
		return fmt.Errorf("--baseline is %.40q: give np or dart-r", o.baseline)
	case o.solved != "" && o.data == "":
		return errors.New("--case needs --data: give the folder of its block times")
	case o.config != "" && o.counts != "":
		return errors.New("--counts applies to --case, not to the devices of --config: leave it out")
	case !(o.bandwidth > 0 && o.bandwidth <= manyMiB):
		return fmt.Errorf("--bandwidth is %v: give Gbit/s above 0, or --stages 1", o.bandwidth)
	case !(o.margin >= 0 && o.margin < 1):
		return fmt.Errorf("--margin is %v: give a fraction of the target, from 0 to less than 1", o.margin)
	case o.liveBytes < 0:
		return fmt.Errorf("--live-bytes is %d: give 0 or more", o.liveBytes)
	case o.search.Limit <= 0:
		return fmt.Errorf("--time-limit is %v: give a time above 0", o.search.Limit)
	}
	return errors.Join(cli.CheckOut("out", o.out), cli.CheckOut("report", o.report))
}

func (o *pipelineOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd.Flags().Changed); err != nil {
		return err
	}
	reference := 0.0
	p, err := o.plan(cmd, cmp.Or(o.solved, o.config), func(ctx context.Context) (p *planning.Placement, err error) {
		p, reference, err = o.solve(ctx)
		return p, err
	})
	if err != nil {
		return err
	}
	r := pipelineResult{
		Objective: p.Objective, Bound: p.Bound, Reference: reference, Seconds: p.Seconds, Solver: p.Solver, Note: p.Note,
		Baseline: o.baseline, Devices: len(p.Devices), Out: o.out, Commit: cli.Commit(),
	}
	for _, s := range p.Services {
		if len(s.Pipelines) > 0 {
			r.Services = append(r.Services, plannedService{s.Name, s.Rate, s.Pipelines})
		}
	}
	r.Models = len(r.Services)
	d := r.document(p)
	if err := writePlan(o.out, p.WriteFile, o.report, d); err != nil {
		return err
	}
	return o.Print(cmd.OutOrStdout(), r, d.WriteText)
}

// solve returns the plan, and the objective of the case's, 0 without one.
func (o *pipelineOptions) solve(ctx context.Context) (p *planning.Placement, reference float64, err error) {
	var services, others []planning.Service
	var devices []planning.Device
	stages := o.stages
	if o.solved != "" {
		counts, err := parseCounts(o.counts)
		if err != nil {
			return nil, 0, err
		}
		var c *planning.Placement
		if c, stages, err = planning.ReadPPipe(o.data, o.solved, counts); err != nil {
			return nil, 0, err
		}
		services, devices, reference = c.Services, c.Devices, c.Objective
	} else if services, devices, others, err = o.configured(); err != nil {
		return nil, 0, err
	}
	plan := planning.Pipe
	if o.shared {
		plan = planning.PipeShared
	}
	switch o.baseline {
	case "np":
		p, err = planning.Pipe(ctx, services, devices, 1, o.search)
	case "dart-r":
		p, err = planning.Chains(ctx, services, devices, stages, o.search)
	case "":
		p, err = plan(ctx, services, devices, stages, o.search)
	}
	if err == nil {
		p.Services = append(p.Services, others...)
	}
	return p, reference, err
}

// parseCounts reads how many devices of each class there are.
func parseCounts(text string) (counts []int, err error) {
	if text == "" {
		return nil, nil
	}
	sum := 0
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if sum += n; err != nil || n < 0 || sum > maxDevices {
			return nil, fmt.Errorf("--counts is %.40q: give a number for each class, as in 25,75, with a total of at most %d", text, maxDevices)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// pipelineResult is what the command says of a plan.
type pipelineResult struct {
	Objective float64          `json:"objective"`
	Bound     float64          `json:"bound"`
	Reference float64          `json:"reference,omitempty"`
	Seconds   float64          `json:"seconds"` // reading, search and writing
	Solver    string           `json:"solver"`
	Note      string           `json:"note,omitempty"`
	Baseline  string           `json:"baseline,omitempty"`
	Models    int              `json:"models"`
	Devices   int              `json:"devices"`
	Services  []plannedService `json:"services"`
	Out       string           `json:"out,omitempty"`
	Commit    string           `json:"commit"`
}

// plannedService is what a service gets.
type plannedService struct {
	Name      string              `json:"name"`
	Rate      float64             `json:"rate"`
	Pipelines []planning.Pipeline `json:"pipelines"`
}

// document says what is to be expected of a plan. On a page it also draws it.
func (r *pipelineResult) document(p *planning.Placement) *report.Document {
	d := &report.Document{Title: "pipelines over " + report.Count(r.Devices, "device")}
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

// fewNames names devices, and counts those of many.
func fewNames(names []string) string {
	if names = slices.Compact(slices.Clone(names)); len(names) > listedModels/2 {
		return strconv.Itoa(len(names))
	}
	return strings.Join(names, ", ")
}

// use adds how busy the devices of each class are, and how many idle.
func (r *pipelineResult) use(d *report.Document, p *planning.Placement) {
	type use struct {
		devices, idle int
		load          float64
	}
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
// runs in the stages, and it moves.
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
	classes := 0
	colors := map[string]int{}
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
