package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/planning"
)

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
	f.IntVar(&o.herd.GroupLimit, "group-limit", 0, "most devices of a serving group")
	f.IntVar(&o.herd.Groups, "groups", 0, "most serving groups")
	f.Float64Var(&o.herd.Affinity, "affinity", 0, "largest affinity of two models of a serving group, 1 or more")
	f.IntVar(&o.clusters, "sub-clusters", 0, "number of sub-clusters to divide the models among")
	f.Float64Var(&o.partition.MaxRate, "max-rate", 0, "most requests per second of a sub-cluster")
	f.StringVar(&o.inForce, "in-force", "", "plan of sub-clusters to start from")
	f.Float64Var(&o.partition.MaxChange, "max-change", 0, "most MiB to unload and load when changing the plan in force")
	f.StringVar(&o.search.Solver, "solver", "", "HiGHS or CBC program, or none")
	cmd.MarkFlagsMutuallyExclusive("config", "sub-clusters")
	return cmd
}

type planOptions struct {
	searched
	gpu, devices string
	named        bool // the devices are, on the command line
	memory       float64
	herd         planning.Herd
	clusters     int
	partition    planning.Partition
	inForce      string
}

// searched is what the commands have in common that search for a plan.
type searched struct {
	cli.Output
	data, config, out string
	search            planning.Search
}

func (o *searched) flags(f *pflag.FlagSet, data, limit string) {
	f.StringVar(&o.data, "data", "", data)
	f.StringVarP(&o.config, "config", "c", "", "configuration with the services and devices")
	f.DurationVar(&o.search.Limit, "time-limit", o.search.Limit, limit)
	f.StringVarP(&o.out, "out", "o", "", "write the plan to this file")
	o.Flags(f)
}

// plan shows how long has been searched, and returns the plan with how long all of it took.
func (o *searched) plan(cmd *cobra.Command, from string, solve func(context.Context) (*planning.Placement, error)) (*planning.Placement, error) {
	began := time.Now()
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	show, end := cli.Bar()
	o.search.Progress = func(doing string) { show(doing, float64(time.Since(began))/float64(o.search.Limit)) }
	p, err := solve(ctx)
	end()
	if err == nil {
		p.Seconds = time.Since(began).Seconds()
	}
	return p, err
}

// manyMiB stands for memory without a limit.
const manyMiB = 1e9

// maxDevices is how many devices a plan may have.
const maxDevices = 100_000

// check refuses options that mean nothing, or nothing together.
func (o *planOptions) check(changed func(string) bool) error {
	for name, v := range map[string]float64{
		"memory": o.memory, "group-limit": float64(o.herd.GroupLimit), "groups": float64(o.herd.Groups), "affinity": o.herd.Affinity,
		"sub-clusters": float64(o.clusters), "max-rate": o.partition.MaxRate, "time-limit": o.search.Limit.Seconds(),
	} {
		if changed(name) && !(v > 0 && v <= manyMiB) {
			return fmt.Errorf("--%s %v: give a number above 0", name, v)
		}
	}
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

func (o *planOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd.Flags().Changed); err != nil {
		return err
	}
	o.named = cmd.Flags().Changed("devices")
	streams := 0
	p, err := o.plan(cmd, cmp.Or(o.data, o.config), func(ctx context.Context) (p *planning.Placement, err error) {
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
	r.RateImbalance, r.MemoryImbalance = p.Imbalance()
	return o.Print(cmd.OutOrStdout(), r, func(w io.Writer) error { return r.document(p).WriteText(w) })
}

func (o *planOptions) solve(ctx context.Context) (p *planning.Placement, streams int, err error) {
	var services []planning.Service
	devices, err := o.parseDevices()
	if o.config != "" && err == nil {
		var pool []planning.Device
		if services, pool, err = configured(o.config, o.memory); !o.named {
			devices = pool
		}
	}
	if err == nil {
		services, streams, err = planning.ReadServices(o.data, o.gpu, services)
	}
	if err != nil {
		return nil, 0, err
	}
	if o.inForce != "" {
		if o.partition.InForce, err = planning.ReadPlacement(o.inForce); err != nil {
			return nil, 0, err
		}
	}
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

// parseDevices returns so many devices with the memory given, or those that are named.
func (o *planOptions) parseDevices() (devices []planning.Device, err error) {
	if n, err := strconv.Atoi(o.devices); err == nil {
		if n < 1 || n > maxDevices {
			return nil, fmt.Errorf("--devices is %d: give a number from 1 to %d", n, maxDevices)
		}
		return numbered("device", n, o.memory), nil
	}
	for _, text := range strings.Split(o.devices, ",") {
		d := planning.Device{Speed: 1}
		var memory, speed string
		var given, with bool
		d.Name, memory, given = strings.Cut(text, "=")
		memory, speed, with = strings.Cut(memory, ":")
		if d.Memory, err = strconv.ParseFloat(memory, 64); with && err == nil {
			d.Speed, err = strconv.ParseFloat(speed, 64)
		}
		if err != nil || !given || d.Name == "" {
			return nil, fmt.Errorf("--devices is %q: give a number, or NAME=MEMORY or NAME=MEMORY:SPEED, with the memory in MiB, as in a=40960,b=10240:0.25", text)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

func numbered(name string, n int, memory float64) (devices []planning.Device) {
	for i := range n {
		devices = append(devices, planning.Device{Name: fmt.Sprintf("%s-%d", name, i+1), Memory: memory, Speed: 1})
	}
	return devices
}

// planResult is what the command says of a plan.
type planResult struct {
	Kind      string  `json:"kind"`
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`
	Seconds   float64 `json:"seconds"` // reading, search and writing
	Solver    string  `json:"solver"`
	Note      string  `json:"note,omitempty"`

	// (max − min)/average over devices or sub-clusters: the imbalance factors of Symphony.
	RateImbalance   float64 `json:"rate_imbalance"`
	MemoryImbalance float64 `json:"memory_imbalance"`

	Models  int    `json:"models"`
	Streams int    `json:"streams"`
	Devices int    `json:"devices"`
	Out     string `json:"out,omitempty"`
	Commit  string `json:"commit"`
}

const (
	mostRows     = 40 // of a table on a terminal
	listedModels = 8  // of models in a row
)

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
	busiest := slices.MaxFunc(p.Devices, func(a, b planning.Device) int { return cmp.Compare(a.Load, b.Load) })
	if r.Kind != "partition" && busiest.Load > 1.001 {
		d.Text("overloaded: %s has %.3g times the load that its devices sustain; add devices", busiest.Name, busiest.Load)
	}
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

// writePlan writes a plan to a file, and a page that draws it, where they are named.
func writePlan(out string, write func(path string) error, page string, d *report.Document) (err error) {
	if out != "" {
		err = write(out)
	}
	if err == nil && page != "" {
		err = textfile.Create(page, d.WriteHTML)
	}
	return err
}
