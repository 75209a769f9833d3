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

	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/report"
	"github.com/overlapd/overlapd/textfile"
)

func planPlacementCommand() *cobra.Command {
	o := planOptions{devices: "1", searched: searched{search: planning.Search{Limit: 10 * time.Second}}}
	cmd := &cobra.Command{
		Use:   "placement",
		Short: "Say which models are loaded on which devices",
		Long: `Placement reads a CSV file of models and says what is loaded where. Its columns:

  model (or name)   its name; rows of one model are streams of requests to it
  alpha_ms, beta_ms a batch of b takes alpha·b + beta, on a device of speed 1
  slo_ms (or slo)   target, which limits the batch; without it a batch has 128 at most
  rate              requests a second; without it 1
  memory_mib        what the model takes on a device; without it 0 (or: memory)
  working_mib       what a batch takes besides, while it runs; without it 0
  gpu               with --gpu, rows of others are left out

With --config the models are the services of a daemon's configuration and the devices
its pool, and the plan is one that serve takes (plan = FILE). Times are then those of the
profile of an emulated device, or what a daemon has measured of each service, and targets
those of the configuration, so that --data needs no columns but model and rate. Without
--data each service has one request a second. A GPU's memory is not asked for: give
--devices, and the column memory_mib.

There are three plans:

By default each model runs on as many of the devices of one host as memory allows,
so that the least burst tolerance is as large as can be: the speed of the devices
that a model runs on, over what its load needs of them on average.

With --group-limit, --groups or --affinity, equal devices form serving groups, each
with models of its own (Herd: Shepherd, section 4). The objective is the same.

With --sub-clusters the models are divided among sub-clusters, whose devices have
--memory each, so that rates and memory are balanced (Symphony, appendix A). The
objective is the largest difference of a rate from the average plus that of memory,
as parts of the averages. --in-force and --max-change bound what changes.

The bound is what no plan can exceed. Where a solver is installed (highs or cbc, in
PATH or named by OVERLAPD_SOLVER) it works on what lies between; without one the
plan is that of a heuristic. docs/planning.md has more.`,
		Example: `  overlapd plan placement --config overlapd.toml --data rates.csv --out plan.json
  overlapd plan placement --data models.csv --devices 4 --memory 24576 --out plan.json
  overlapd plan placement --data models.csv --devices a=40960,b=10240:0.25
  overlapd plan placement --data models.csv --devices 1000 --memory 81920 --group-limit 100 --json
  overlapd plan placement --data models.csv --sub-clusters 20 --memory 81920 --in-force plan.json --max-change 50000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	o.flags(f, "CSV file of models", "how long to search, with the solver")
	f.StringVar(&o.gpu, "gpu", "", "only rows with this value in the column gpu")
	f.StringVar(&o.devices, "devices", o.devices, "how many equal devices, or NAME=MEMORY[:SPEED] of each, with commas between them")
	f.Float64Var(&o.memory, "memory", manyMiB, "MiB of each device, by default without a limit")
	f.IntVar(&o.herd.GroupLimit, "group-limit", 0, "devices of a serving group at most")
	f.IntVar(&o.herd.Groups, "groups", 0, "serving groups at most")
	f.Float64Var(&o.herd.Affinity, "affinity", 0, "largest affinity of two models of a serving group, 1 or more")
	f.IntVar(&o.clusters, "sub-clusters", 0, "divide the models among so many sub-clusters")
	f.Float64Var(&o.partition.MaxRate, "max-rate", 0, "requests a second of a sub-cluster at most")
	f.StringVar(&o.inForce, "in-force", "", "plan of sub-clusters that is to be changed")
	f.Float64Var(&o.partition.MaxChange, "max-change", 0, "MiB that may be unloaded and loaded to change the plan in force")
	f.StringVar(&o.search.Solver, "solver", "", "program of HiGHS or CBC, or none")
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
	output
	data, config, out string
	search            planning.Search
}

func (o *searched) flags(f *pflag.FlagSet, data, limit string) {
	f.StringVar(&o.data, "data", "", data)
	f.StringVarP(&o.config, "config", "c", "", "configuration with the services and devices")
	f.DurationVar(&o.search.Limit, "time-limit", o.search.Limit, limit)
	f.StringVarP(&o.out, "out", "o", "", "file for the plan")
	o.flag(f)
}

// plan shows how long has been searched, and returns the plan with how long all of it took.
func (o *searched) plan(cmd *cobra.Command, from string, solve func(context.Context) (*planning.Placement, error)) (*planning.Placement, error) {
	began := time.Now()
	ctx, stop := interruptible(cmd)
	defer stop()
	bar := newBar("reading "+from, 1)
	o.search.Progress = func(doing string) { showPart(bar, doing, float64(time.Since(began))/float64(o.search.Limit)) }
	p, err := solve(ctx)
	_ = bar.Clear()
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
		return errors.New("a plan for which models? Give --data, a CSV file of them, or --config, whose services they are, or both")
	case o.clusters > maxDevices:
		return fmt.Errorf("--sub-clusters %d: give at most %d", o.clusters, maxDevices)
	case changed("affinity") && o.herd.Affinity < 1:
		return fmt.Errorf("--affinity %v: two models that are alike have 1; give that or more", o.herd.Affinity)
	case apart && (o.herd != planning.Herd{} || changed("devices")):
		return errors.New("--sub-clusters does not go with --devices, --group-limit, --groups and --affinity: leave out one or the other")
	case !apart && (changed("max-rate") || changed("in-force") || changed("max-change")):
		return errors.New("--max-rate, --in-force and --max-change are for --sub-clusters: give their number")
	case changed("max-change") != changed("in-force") || !(o.partition.MaxChange >= 0):
		return errors.New("--in-force and --max-change go together: give both, and a number from 0")
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
		Models: len(p.Services), Streams: streams, Devices: len(p.Devices), Out: o.out, Commit: buildCommit(),
	}
	r.RateImbalance, r.MemoryImbalance = p.Imbalance()
	return o.print(cmd.OutOrStdout(), r, func(w io.Writer) error { return r.document(p).WriteText(w) })
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
			return nil, fmt.Errorf("--devices %d: give a number from 1 to %d", n, maxDevices)
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
			return nil, fmt.Errorf("--devices %q: it must be a number, or NAME=MEMORY or NAME=MEMORY:SPEED, with the memory in MiB, as in a=40960,b=10240:0.25", text)
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
		d.Text("overloaded: %s has %.3g times the load that it can bear; give more devices", busiest.Name, busiest.Load)
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
		d.Text("%d more places are not shown; --out writes all of them", more)
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
