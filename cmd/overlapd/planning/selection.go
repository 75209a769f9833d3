package planning

import (
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
	"github.com/overlapd/overlapd/planning/selection"
)

// selectionOptions are the flags of plan selection. What RAMSIS calls a worker is set by them directly.
type selectionOptions struct {
	cli.Output
	// Variants are those of data, in a format and for a task, or of profile, or of a service of config.
	format, data, task, profile string
	config, service             string
	// discretization and batching are of the model that a policy is computed with.
	discretization, batching string
	target                   time.Duration
	// models is how many variants there should be, 0 for all of the best.
	models int
	// loads is a range, "LOW:HIGH". A single load is the worker's.
	loads       string
	out, report string
	worker      selection.Worker
}

// planSelectionCommand computes what a daemon looks up: choosing a variant must take microseconds, and a
// policy takes seconds.
func planSelectionCommand() *cobra.Command {
	o := selectionOptions{format: "ramsis", task: "image", discretization: "fld", batching: "max"}
	o.worker = selection.Worker{Workers: 1, CV: 1, Levels: 100}
	cmd := &cobra.Command{
		Use:   "selection",
		Short: "Plan which variant of a service runs the next batch",
		Long: `Selection computes policies for a service with variants, several models that can answer
for it. A policy chooses the variant of the next batch by the number of queued queries
and the time that the first of them has left. It answers as many queries in time, by as
accurate a variant, as possible (RAMSIS), and prints the expected accuracy and
violations.

Variants come from one of:
  --profile  a CSV file with a row for each batch of each variant, and the columns
             variant, accuracy, batch and latency_ms
  --data     a folder with accuracy_percent.csv and profile_summary_ms.csv, the
             accuracies and latencies (p95) published with the paper
  --config   a daemon's configuration; --service names a service with variants. Target
             and workers are those of the service, latencies are the daemon's
             measurements of each variant, or those of the profile of an emulated device

A variant that is slower than a more accurate one never runs. Give a latency that
batches rarely exceed, not the mean: slower batches may be late.

--load computes the policy for one load. --loads computes them for a range: the loads
are chosen so that the expected accuracies of neighbours differ by at most 1 %, and a
daemon uses the policy of the next higher load. The range ends where the fastest
variant cannot keep up. --out writes the policies with their inputs for serve
(selection). --report charts accuracy and violations over load, and the chosen variant
by queued queries and time left.

Queries arrive as a Poisson process, or burstier with --cv above 1, and go to equal
workers in turn. Late queries are still answered, unless --drop drops them.`,
		Example: `  overlapd plan selection --profile variants.csv --target 100ms --loads 5:500 --out policies.json --report policies.html
  overlapd plan selection --config overlapd.toml --service vision --loads 5:500 --out policies.json
  overlapd plan selection --data ramsis --task image --target 300ms --workers 60 --load 2000
  overlapd plan selection --data ramsis --task text --target 100ms --workers 20 --load 400 --discretization md --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	// Variants come from one of three sources. Only the last knows a target and workers.
	f.StringVar(&o.format, "format", o.format, "format of --data: ramsis")
	f.StringVar(&o.data, "data", "", "folder of accuracies and latencies")
	f.StringVar(&o.task, "task", o.task, "task of --data: image or text")
	f.StringVar(&o.profile, "profile", "", "CSV file of variants")
	f.StringVarP(&o.config, "config", "c", "", "configuration of a daemon")
	f.StringVar(&o.service, "service", "", "service of --config with variants")
	// What the policies must cope with.
	f.DurationVar(&o.target, "target", 0, "time from a query's arrival to its answer, as in 300ms")
	f.IntVar(&o.worker.Workers, "workers", o.worker.Workers, "number of workers")
	f.Float64Var(&o.worker.Rate, "load", 0, "queries per second of all workers together")
	f.StringVar(&o.loads, "loads", "", "lowest and highest load, as in 5:500")
	f.Float64Var(&o.worker.CV, "cv", o.worker.CV, "coefficient of variation of the time between queries, 1 or more")
	f.BoolVar(&o.worker.Drop, "drop", false, "drop queries that cannot be answered in time, instead of answering late")
	// How the queue is modelled. More levels, and batches of any size, give better policies
	// and take longer.
	f.StringVar(&o.discretization, "discretization", o.discretization, "levels of the time left: fld, equally spaced, or md, one at each latency")
	f.IntVar(&o.worker.Levels, "levels", o.worker.Levels, "number of levels with fld")
	f.StringVar(&o.batching, "batching", o.batching, "batching: max, a batch takes all queued queries, or variable, it may take fewer")
	f.IntVar(&o.models, "models", 0, "number of variants to choose from: fewer of the best, or more by interpolation; 0 for the best")
	f.StringVarP(&o.out, "out", "o", "", "write the policies to this file")
	f.StringVar(&o.report, "report", "", "write a page with charts to this file")
	o.Flags(f)
	cmd.MarkFlagsMutuallyExclusive("load", "loads")
	cmd.MarkFlagsMutuallyExclusive("data", "profile", "config")
	cmd.MarkFlagsRequiredTogether("config", "service")
	return cmd
}

// Limits of what selection chooses from and for: models, and queries that wait (RAMSIS,
// section 6), if a model can take so many at once. The states of a policy grow with their product.
const (
	maxModels    = 1000
	longestQueue = 32
)

// check returns an error that says what is missing or contradicts itself among the flags.
func (o *selectionOptions) check(cmd *cobra.Command) error {
	for name, at := range map[string]struct {
		value string
		known []string
	}{
		"format": {o.format, []string{"ramsis"}}, "task": {o.task, []string{"image", "text"}},
		"discretization": {o.discretization, []string{"fld", "md"}}, "batching": {o.batching, []string{"max", "variable"}},
	} {
		if !slices.Contains(at.known, at.value) {
			return fmt.Errorf("--%s is %.40q: give one of %v", name, at.value, at.known)
		}
	}
	given := cmd.Flags().Changed
	// A configuration brings a target, the other sources do not.
	switch {
	case o.data+o.profile+o.config == "" || o.target <= 0 && o.config == "" || !given("load") && !given("loads"):
		return errors.New("nothing to plan for: give --profile, --data or --config for accuracies and latencies, --target above 0, and --load or --loads in queries per second")
	case o.discretization == "md" && given("levels"):
		return errors.New("--levels applies to --discretization fld: leave one of them out")
	case o.discretization == "fld" && o.worker.Levels < 1:
		return fmt.Errorf("--levels is %d: give a number above 0", o.worker.Levels)
	case o.models < 0 || o.models > maxModels:
		return fmt.Errorf("--models is %d: give a number from 1 to %d", o.models, maxModels)
	}
	return errors.Join(cli.CheckOut("out", o.out), cli.CheckOut("report", o.report))
}

// read sets the variants to choose from, and, of a configuration, the device, and the target
// and workers that no flag gives.
func (o *selectionOptions) read(cmd *cobra.Command) (err error) {
	// The service's own target and workers are what a daemon will have. Flags try others.
	w := &o.worker
	w.Target = float64(o.target) / float64(time.Millisecond)
	switch {
	case o.config != "":
		var of selection.Worker
		of, err = selectable(o.config, o.service)
		if w.Device, w.Variants = of.Device, of.Variants; !cmd.Flags().Changed("target") {
			w.Target = of.Target
		}
		if !cmd.Flags().Changed("workers") {
			w.Workers = of.Workers
		}
	case o.profile != "":
		w.Variants, err = selection.ReadProfile(o.profile)
	default:
		w.Variants, err = selection.ReadRAMSIS(o.data, o.task)
	}
	if err != nil {
		return err
	}
	// Only the best are made fewer or more: what is dominated never runs.
	if o.models > 0 {
		w.Variants = selection.Resize(selection.Front(w.Variants), o.models)
	}
	// More queries than the largest batch need not be told apart by how many they are.
	longest := 0
	for _, v := range w.Variants {
		longest = max(longest, len(v.Latency))
	}
	w.Queue, w.Variable = min(longest, longestQueue), o.batching == "variable"
	// No number of levels stands for one at each latency.
	if o.discretization == "md" {
		w.Levels = 0
	}
	return nil
}

// solve returns the policies for the loads.
func (o *selectionOptions) solve(ctx context.Context) (*selection.Set, error) {
	if o.loads == "" {
		p, err := o.worker.Solve(ctx)
		return &selection.Set{Worker: o.worker, Made: time.Now().UTC().Truncate(time.Second), Policies: []*selection.Policy{p}}, err
	}
	// Both numbers are checked at once, so that a missing one gives the same error as a wrong one.
	from, to, _ := strings.Cut(o.loads, ":")
	low, err := strconv.ParseFloat(from, 64)
	high, err2 := strconv.ParseFloat(to, 64)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("--loads is %.40q: give two numbers, as in 5:500", o.loads)
	}
	// How many policies there will be is not known before they are computed, so the gap is shown.
	show, end := cli.Bar()
	defer end() //nolint:errcheck // it is for looks
	return o.worker.SolveSet(ctx, low, high, func(found int, gap float64) {
		show(fmt.Sprintf("%s, neighbours differ by %.2g %%", report.Count(found, "policy", "policies"), 100*gap), min(1, 0.01/max(gap, 1e-9)))
	})
}

// run computes policies, and writes them as a file for serve, as a page, and as a summary.
func (o *selectionOptions) run(cmd *cobra.Command) error {
	began := time.Now()
	if err := o.check(cmd); err != nil {
		return err
	}
	if err := o.read(cmd); err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	s, err := o.solve(ctx)
	if err != nil {
		return err
	}
	// The summary is of the highest load, which is the hardest.
	p := s.Policies[len(s.Policies)-1]
	// Variants that are left out are listed with the reason, since their owner may expect them to run.
	r := &selectionResult{
		Accuracy: p.Accuracy, Violations: p.Violations, States: p.States, Seconds: time.Since(began).Seconds(), Models: len(p.Variants),
		LeftOut: selection.LeftOut(s.Variants), Policies: s.Policies, Note: s.Note, Out: o.out, Commit: cli.Commit(),
	}
	d := r.document(s)
	if err := writePlan(o.out, s.WriteFile, o.report, d); err != nil {
		return err
	}
	return o.Print(cmd.OutOrStdout(), r, d.WriteText)
}
