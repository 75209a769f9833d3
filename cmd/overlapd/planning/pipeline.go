package planning

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/planning"
)

// pipelineOptions are the flags of plan pipeline.
type pipelineOptions struct {
	searched
	// format, solved and counts are a case of the paper: that of its files, its name, and how many
	// devices it has of each class.
	format, solved, counts string
	// devices has the memory of those of the configuration.
	devices string
	// stages, margin, bandwidth and liveBytes are what a configuration does not say of a pipeline. A
	// case has its own.
	stages            int
	margin, bandwidth float64
	liveBytes         int64
	// shared lets stages share devices, baseline plans by a method to compare with.
	shared   bool
	baseline string
	report   string
}

// planPipelineCommand searches longer than placement does by default: where to cut a model is a further
// dimension. No solver is needed, so none is looked for.
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
	// What is planned for: the services of a configuration, or a case.
	f.StringVar(&o.format, "format", o.format, "format of --data with --case: ppipe")
	o.flags(f, "folder of block times, or with --config a CSV file of rates", "how long to search")
	f.StringVar(&o.solved, "case", "", "plan whose problem is solved again")
	f.StringVar(&o.counts, "counts", "", "devices of each class of --case, as in 25,75")
	f.StringVar(&o.devices, "devices", "", "memory of the devices of --config, each NAME=MIB, separated by commas; unlimited by default")
	// How a pipeline may be made, unless a case says so.
	f.IntVar(&o.stages, "stages", o.stages, "most stages of a pipeline, 1 to 4; with --case the default is that of the case")
	f.Float64Var(&o.margin, "margin", o.margin, "fraction of the target to leave free; with --case the default is that of the case")
	f.Float64Var(&o.bandwidth, "bandwidth", o.bandwidth, "bandwidth between stages in Gbit/s; with --case the default is that of the case")
	f.Int64Var(&o.liveBytes, "live-bytes", o.liveBytes, "bytes of a query between two operators, for models on an emulated device")
	// Other ways to use the same devices.
	f.BoolVar(&o.shared, "shared", false, "let stages and services share devices, one batch after another")
	f.StringVar(&o.baseline, "baseline", "", "plan to compare with: np or dart-r")
	f.StringVar(&o.report, "report", "", "write a page with charts to this file")
	cmd.MarkFlagsMutuallyExclusive("config", "case")
	return cmd
}

// check refuses options that mean nothing, or nothing together.
func (o *pipelineOptions) check(changed func(string) bool) error {
	// A flag that would be ignored is an error, so that nobody compares what was not planned.
	for _, name := range []string{"stages", "margin", "bandwidth", "devices", "live-bytes"} {
		if o.solved != "" && changed(name) {
			return fmt.Errorf("--%s applies to --config, and a case has its own: leave it out", name)
		}
	}
	// A configuration and a case are two sources, with flags of their own.
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
	// The comparisons are written so that NaN fails them.
	case !(o.bandwidth > 0 && o.bandwidth <= manyMiB):
		return fmt.Errorf("--bandwidth is %v: give Gbit/s above 0, or --stages 1", o.bandwidth)
	case !(o.margin >= 0 && o.margin < 1):
		return fmt.Errorf("--margin is %v: give a fraction of the target, from 0 to less than 1", o.margin)
	case o.liveBytes < 0:
		return fmt.Errorf("--live-bytes is %d: give 0 or more", o.liveBytes)
	case o.search.Limit <= 0:
		return fmt.Errorf("--time-limit is %v: give a time above 0", o.search.Limit)
	}
	// A search of a minute should not end with a folder that is missing.
	return errors.Join(cli.CheckOut("out", o.out), cli.CheckOut("report", o.report))
}

// run plans, and writes the plan as a file for serve, as a page, and as a summary.
func (o *pipelineOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd.Flags().Changed); err != nil {
		return err
	}
	// The reference is known only of a case, whose authors published their plan.
	reference := 0.0
	p, err := o.plan(cmd, func(ctx context.Context) (p *planning.Placement, err error) {
		p, reference, err = o.solve(ctx)
		return p, err
	})
	if err != nil {
		return err
	}
	// The plan is for serve, the result for people and scripts: it has no times of blocks.
	r := pipelineResult{
		Objective: p.Objective, Bound: p.Bound, Reference: reference, Seconds: p.Seconds, Solver: p.Solver, Note: p.Note,
		Baseline: o.baseline, Devices: len(p.Devices), Out: o.out, Commit: cli.Commit(),
	}
	// Services that get no pipeline are in the plan, since serve wants all, and not in the result.
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
	// A case brings the number of stages that its authors allowed.
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
	// Baselines divide the same services and devices, so that objectives can be compared.
	plan := planning.Pipe
	if o.shared {
		plan = planning.PipeShared
	}
	switch o.baseline {
	case "np": // a pipeline of one stage
		p, err = planning.Pipe(ctx, services, devices, 1, o.search)
	case "dart-r":
		p, err = planning.Chains(ctx, services, devices, stages, o.search)
	case "":
		p, err = plan(ctx, services, devices, stages, o.search)
	}
	// The others run wherever there is time, and take no part in the objective.
	if err == nil {
		p.Services = append(p.Services, others...)
	}
	return p, reference, err
}

// parseCounts reads how many devices of each class there are. Without a text they are those that the name
// of the case has.
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
