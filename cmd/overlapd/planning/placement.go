package planning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/planning"
)

// planPlacementCommand plans three kinds of placements, which differ in what they balance. They share a
// command because their inputs are the same, and one tries the next when the first does not suffice.
func planPlacementCommand() *cobra.Command {
	o := planOptions{devices: "1", searched: searched{search: planning.Search{Limit: 10 * time.Second}}}
	cmd := &cobra.Command{
		Use:   "placement",
		Short: "Plan which models are loaded on which devices",
		Long: `Placement plans which models are loaded on which devices. Use it when the models do not
all fit on every device. docs/planning.md has the background.

--data is a CSV file with a row for each model, and these columns:
  model (or name)   its name; rows with the same model are streams of requests to it
  alpha_ms, beta_ms a batch of b takes alpha·b + beta on a device of speed 1
  slo_ms (or slo)   latency target, which limits the batch; default: batches up to 128
  rate              requests per second; default 1
  memory_mib        memory of the model on a device (or: memory); default 0
  working_mib       additional memory of a running batch; default 0
  gpu               with --gpu, rows with another value are skipped

With --config the models and devices are those of a daemon's configuration, and serve
takes the plan by the key plan. Times come from the profile of an emulated device or
from the daemon's measurements, so --data needs only the columns model and rate.
Without --data each service has 1 request/s. Placement does not read the memory of
GPUs: give --devices and the column memory_mib.

There are three kinds of plans:

By default each model runs on as many devices of one host as memory allows, to
maximize the least burst tolerance: the speed of the devices of a model over the
speed that its load needs on average.

With --group-limit, --groups or --affinity, equal devices form serving groups, each
with its own models and the same objective (Herd: Shepherd, section 4).

With --sub-clusters the models are divided among sub-clusters of --memory for each
device, to balance rates and memory (Symphony, appendix A). The objective is the
largest deviation of a rate from the average plus that of memory, as fractions of the
averages. --in-force and --max-change limit the changes to an existing plan.

The printed bound is what no plan can exceed. With a solver (highs or cbc, in PATH or
named by OVERLAPD_SOLVER) the search goes on between heuristic and bound; without one
the heuristic's plan is the result.`,
		Example: `  overlapd plan placement --config overlapd.toml --data rates.csv --out plan.json
  overlapd plan placement --data models.csv --devices 4 --memory 24576 --out plan.json
  overlapd plan placement --data models.csv --devices a=40960,b=10240:0.25
  overlapd plan placement --data models.csv --devices 1000 --memory 81920 --group-limit 100 --json
  overlapd plan placement --data models.csv --sub-clusters 20 --memory 81920 --in-force plan.json --max-change 50000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	o.flags(f, "CSV file of models", "how long to search, with a solver")
	f.StringVar(&o.gpu, "gpu", "", "use only rows with this value in the column gpu")
	f.StringVar(&o.devices, "devices", o.devices, "number of equal devices, or NAME=MEMORY[:SPEED] of each, separated by commas")
	f.Float64Var(&o.memory, "memory", manyMiB, "memory of each device in MiB, unlimited by default")
	// Each of these asks for serving groups.
	f.IntVar(&o.herd.GroupLimit, "group-limit", 0, "most devices of a serving group")
	f.IntVar(&o.herd.Groups, "groups", 0, "most serving groups")
	f.Float64Var(&o.herd.Affinity, "affinity", 0, "largest affinity of two models of a serving group, 1 or more")
	// This asks for sub-clusters, and those after it limit the change of a plan of them.
	f.IntVar(&o.clusters, "sub-clusters", 0, "number of sub-clusters to divide the models among")
	f.Float64Var(&o.partition.MaxRate, "max-rate", 0, "most requests per second of a sub-cluster")
	f.StringVar(&o.inForce, "in-force", "", "plan of sub-clusters to start from")
	f.Float64Var(&o.partition.MaxChange, "max-change", 0, "most MiB to unload and load when changing the plan in force")
	f.StringVar(&o.search.Solver, "solver", "", "HiGHS or CBC program, or none")
	// A daemon is one host, and has no sub-clusters.
	cmd.MarkFlagsMutuallyExclusive("config", "sub-clusters")
	return cmd
}

// planOptions are the flags of plan placement.
type planOptions struct {
	searched
	// gpu selects rows of the file of models.
	gpu string
	// devices counts or names them. If they are named on the command line, those of a configuration do
	// not count.
	devices string
	named   bool
	memory  float64
	// herd has the limits of serving groups. With one of them equal devices form groups.
	herd planning.Herd
	// clusters is the number of sub-clusters, 0 if there are none. Then partition limits the change from
	// the plan that is in force, which inForce names.
	clusters  int
	partition planning.Partition
	inForce   string
}

// check refuses options that mean nothing, or nothing together.
func (o *planOptions) check(changed func(string) bool) error {
	// 0 is what flags have that are not given, so one that is given as 0 would be ignored.
	for name, v := range map[string]float64{
		"memory": o.memory, "group-limit": float64(o.herd.GroupLimit), "groups": float64(o.herd.Groups), "affinity": o.herd.Affinity,
		"sub-clusters": float64(o.clusters), "max-rate": o.partition.MaxRate, "time-limit": o.search.Limit.Seconds(),
	} {
		if changed(name) && !(v > 0 && v <= manyMiB) {
			return fmt.Errorf("--%s %v: give a number above 0", name, v)
		}
	}
	// Each kind of plan has flags that mean nothing to the others.
	switch apart := o.clusters > 0; {
	case o.data == "" && o.config == "":
		return errors.New("no models to plan for: give --data, a CSV file of models, or --config, whose services are planned, or both")
	case o.clusters > maxDevices:
		return fmt.Errorf("--sub-clusters is %d: give at most %d", o.clusters, maxDevices)
	case changed("affinity") && o.herd.Affinity < 1:
		return fmt.Errorf("--affinity is %v: give 1 or more; 1 is the affinity of two equal models", o.herd.Affinity)
	case apart && (o.herd != planning.Herd{} || changed("devices")):
		return errors.New("--sub-clusters cannot be used with --devices, --group-limit, --groups and --affinity: leave out one or the other")
	case !apart && (changed("max-rate") || changed("in-force") || changed("max-change")):
		return errors.New("--max-rate, --in-force and --max-change need --sub-clusters: give the number of sub-clusters")
	case changed("max-change") != changed("in-force") || !(o.partition.MaxChange >= 0):
		return errors.New("--in-force and --max-change go together: give both, with --max-change 0 or more")
	}
	return nil
}

// run plans, and writes the plan as a file for serve and as a summary.
func (o *planOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd.Flags().Changed); err != nil {
		return err
	}
	// The default of --devices does not overrule the devices of a configuration.
	o.named = cmd.Flags().Changed("devices")
	streams := 0
	p, err := o.plan(cmd, func(ctx context.Context) (p *planning.Placement, err error) {
		p, streams, err = o.solve(ctx)
		return p, err
	})
	if err == nil {
		err = writePlan(o.out, p.WriteFile, "", nil)
	}
	if err != nil {
		return err
	}
	r := planResult{
		Kind: p.Kind, Objective: p.Objective, Bound: p.Bound, Seconds: p.Seconds, Solver: p.Solver, Note: p.Note,
		Models: len(p.Services), Streams: streams, Devices: len(p.Devices), Out: o.out, Commit: cli.Commit(),
	}
	// Said of every plan, so that kinds can be compared.
	r.RateImbalance, r.MemoryImbalance = p.Imbalance()
	return o.Print(cmd.OutOrStdout(), r, func(w io.Writer) error { return r.document(p).WriteText(w) })
}

// solve reads services and devices from the files that are named, and plans. Streams are requests to one
// model from several sources, of which a plan knows only the sum.
func (o *planOptions) solve(ctx context.Context) (p *planning.Placement, streams int, err error) {
	var services []planning.Service
	devices, err := parseDevices(o.devices, o.memory)
	if o.config != "" && err == nil {
		var pool []planning.Device
		if services, pool, err = configured(o.config, o.memory); !o.named {
			devices = pool
		}
	}
	// What the file says of a service goes before what the configuration and its measurements say.
	if err == nil {
		services, streams, err = planning.ReadServices(o.data, o.gpu, services)
	}
	if err != nil {
		return nil, 0, err
	}
	// Without a plan in force nothing is loaded, and every model may go anywhere.
	if o.inForce != "" {
		if o.partition.InForce, err = planning.ReadPlacement(o.inForce); err != nil {
			return nil, 0, err
		}
	}
	// Check has refused flags of two kinds.
	switch {
	case o.clusters > 0:
		p, err = o.partition.Plan(ctx, services, numbered("sub-cluster", o.clusters, o.memory), o.search)
	case o.herd != planning.Herd{}:
		p, err = o.herd.Plan(ctx, services, devices, o.search)
	default:
		p, err = planning.Place(ctx, services, devices, o.search)
	}
	return p, streams, err
}

// planResult is what the command says of a plan.
type planResult struct {
	Kind string `json:"kind"`
	// Objective is the least burst tolerance, or of sub-clusters the imbalance, and Bound what no plan has.
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`
	// Seconds are those of reading, search and writing.
	Seconds float64 `json:"seconds"`
	Solver  string  `json:"solver"`
	Note    string  `json:"note,omitempty"`

	// The imbalance factors of Symphony are (max − min)/average, over devices or sub-clusters. Those of
	// other plans are there to compare.
	RateImbalance   float64 `json:"rate_imbalance"`
	MemoryImbalance float64 `json:"memory_imbalance"`

	Models  int    `json:"models"`
	Streams int    `json:"streams"`
	Devices int    `json:"devices"`
	Out     string `json:"out,omitempty"`
	Commit  string `json:"commit"`
}

const (
	// mostRows is of a table on a terminal, where a plan for thousands of devices is of no use.
	mostRows = 40
	// listedModels is how many models a row names.
	listedModels = 8
)

// document says what is to be expected of a plan, and lists the first devices.
func (r *planResult) document(p *planning.Placement) *report.Document {
	d := new(report.Document)
	what := "least burst tolerance %.4g, and no plan has more than %.4g"
	if r.Kind == "partition" {
		what = "imbalance %.4g, and no plan has less than %.4g"
	}
	d.Text("%s, %s: "+what+" (gap %.2f %%); by %s, in %.2f s", report.Count(r.Models, "model"), report.Count(r.Devices, "place"),
		r.Objective, r.Bound, 100*math.Abs(r.Objective-r.Bound)/max(r.Objective, r.Bound, math.SmallestNonzeroFloat64), r.Solver, r.Seconds)
	if r.Note != "" {
		d.Text("%s", r.Note)
	}
	d.Text("(max - min)/average: rate %.4g, memory %.4g", r.RateImbalance, r.MemoryImbalance)
	// More load than the devices sustain is a result, not an error: the plan is still the best there is.
	busiest := slices.MaxFunc(p.Devices, func(a, b planning.Device) int { return cmp.Compare(a.Load, b.Load) })
	if r.Kind != "partition" && busiest.Load > 1.001 {
		d.Text("overloaded: %s has %.3g times the load that its devices sustain; add devices", busiest.Name, busiest.Load)
	}
	// Services know their devices; a table of devices needs it the other way round.
	loaded, memory := map[string][]string{}, map[string]float64{}
	for _, s := range p.Services {
		for _, name := range s.Devices {
			loaded[name] = append(loaded[name], s.Name)
			memory[name] += s.Memory + s.Working
		}
	}
	t := report.NewTable("place", "group", "models", "MiB", "load", "which")
	for _, at := range p.Devices[:min(len(p.Devices), mostRows)] {
		names := loaded[at.Name]
		which := strings.Join(names[:min(len(names), listedModels)], ", ")
		if more := len(names) - listedModels; more > 0 {
			which += fmt.Sprintf(" and %d more", more)
		}
		t.Rowf("%s\t%d\t%d\t%.0f\t%.3g\t%s", at.Name, at.Group, len(names), memory[at.Name], at.Load, which)
	}
	d.Table(t)
	if more := len(p.Devices) - mostRows; more > 0 {
		d.Text("%d more devices are not shown; --out writes all of them", more)
	}
	return d
}
