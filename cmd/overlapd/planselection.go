package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/report"
	"github.com/overlapd/overlapd/selection"
)

type selectionOptions struct {
	output
	format, data, task, profile string
	config, service             string
	discretization, batching    string
	target                      time.Duration
	models                      int
	loads                       string
	out, report                 string
	worker                      selection.Worker
}

func planSelectionCommand() *cobra.Command {
	o := selectionOptions{format: "ramsis", task: "image", discretization: "fld", batching: "max"}
	o.worker = selection.Worker{Workers: 1, CV: 1, Levels: 100}
	cmd := &cobra.Command{
		Use:   "selection",
		Short: "Say which variant of a service runs the next batch",
		Long: `Selection computes which of several models that can answer for a service, its variants,
runs the next batch, given how many queries wait and how much time the first of them has
left, so that as many as possible are answered in time by as accurate a variant as
possible (RAMSIS). It says what accuracy and violations are to be expected of that.

Variants come from one of

  --profile  a CSV file with a row for each batch of each variant, and the columns
             variant, accuracy, batch and latency_ms
  --data     a folder with accuracy_percent.csv and profile_summary_ms.csv, the
             accuracies and latencies (95th percentile) that come with that paper
  --config   a daemon's configuration, of which --service names one with variants. Its
             target is that of the service, its workers are the devices that the service
             is on, and latencies are what a daemon has measured of each variant, or the
             profile of an emulated device has

A variant that is slower than a more accurate one never runs. Give the latency that a
batch seldom exceeds, not the mean: what takes longer than its latency may be late.

--load is for one load. --loads is for a range of them: there is a policy for so many
loads that the expected accuracies of neighbours differ by 1 % at most, and a daemon
takes the one for the lowest load that is at least what comes. The set ends where even
the fastest variant cannot keep up. --out writes it to a file with all that it was made
for, --report draws it: accuracy and violations over load, and which variant runs by
queries that wait and time left.

Queries come as a Poisson process, or in clusters with --cv above 1, and are dealt out
to equal workers in turn. Those that are late are answered all the same, unless --drop
has them dropped.`,
		Example: `  overlapd plan selection --profile variants.csv --target 100ms --loads 5:500 --out policies.json --report policies.html
  overlapd plan selection --config overlapd.toml --service vision --loads 5:500 --out policies.json
  overlapd plan selection --data ramsis --task image --target 300ms --workers 60 --load 2000
  overlapd plan selection --data ramsis --task text --target 100ms --workers 20 --load 400 --discretization md --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", o.format, "of --data: ramsis")
	f.StringVar(&o.data, "data", "", "folder with accuracies and latencies")
	f.StringVar(&o.task, "task", o.task, "of --data, image or text")
	f.StringVar(&o.profile, "profile", "", "CSV file of variants")
	f.StringVarP(&o.config, "config", "c", "", "configuration of a daemon")
	f.StringVar(&o.service, "service", "", "of --config, the one with variants")
	f.DurationVar(&o.target, "target", 0, "time from a query's arrival to its answer, as in 300ms")
	f.IntVar(&o.worker.Workers, "workers", o.worker.Workers, "how many there are")
	f.Float64Var(&o.worker.Rate, "load", 0, "queries a second for all workers")
	f.StringVar(&o.loads, "loads", "", "lowest and highest load, as in 5:500")
	f.Float64Var(&o.worker.CV, "cv", o.worker.CV, "coefficient of variation of the time between queries, from 1 on")
	f.BoolVar(&o.worker.Drop, "drop", false, "drop queries that cannot be in time, instead of answering them late")
	f.StringVar(&o.discretization, "discretization", o.discretization, "levels of the time left: fld, equally far apart, or md, one at each latency")
	f.IntVar(&o.worker.Levels, "levels", o.worker.Levels, "how many levels fld has")
	f.StringVar(&o.batching, "batching", o.batching, "max, a batch has all that wait, or variable, it may have less")
	f.IntVar(&o.models, "models", 0, "how many variants to choose from: fewer of the best, or more that are interpolated; 0 for the best")
	f.StringVarP(&o.out, "out", "o", "", "file for the policies")
	f.StringVar(&o.report, "report", "", "write a page with pictures to this file")
	o.flag(f)
	cmd.MarkFlagsMutuallyExclusive("load", "loads")
	cmd.MarkFlagsMutuallyExclusive("data", "profile", "config")
	cmd.MarkFlagsRequiredTogether("config", "service")
	return cmd
}

// Limits of what selection chooses from and for: models, and queries that wait (RAMSIS,
// section 6), if a model can take so many at once.
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
			return fmt.Errorf("--%s %.40q: give one of %v", name, at.value, at.known)
		}
	}
	given := cmd.Flags().Changed
	switch {
	case o.data+o.profile+o.config == "" || o.target <= 0 && o.config == "" || !given("load") && !given("loads"):
		return errors.New("a policy for what? Give --profile, --data or --config, accuracies and latencies, --target, a time above 0, and --load or --loads, queries a second")
	case o.discretization == "md" && given("levels"):
		return errors.New("--levels is for --discretization fld: leave out one of them")
	case o.discretization == "fld" && o.worker.Levels < 1:
		return fmt.Errorf("--levels %d: give a number above 0", o.worker.Levels)
	case o.models < 0 || o.models > maxModels:
		return fmt.Errorf("--models %d: give a number from 1 to %d", o.models, maxModels)
	}
	return errors.Join(checkOut("out", o.out), checkOut("report", o.report))
}

// read sets the variants to choose from, and, of a configuration, the device, and the target
// and workers that no flag gives.
func (o *selectionOptions) read(cmd *cobra.Command) (err error) {
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
	if o.models > 0 {
		w.Variants = selection.Resize(selection.Front(w.Variants), o.models)
	}
	longest := 0
	for _, v := range w.Variants {
		longest = max(longest, len(v.Latency))
	}
	w.Queue, w.Variable = min(longest, longestQueue), o.batching == "variable"
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
	from, to, _ := strings.Cut(o.loads, ":")
	low, err := strconv.ParseFloat(from, 64)
	high, err2 := strconv.ParseFloat(to, 64)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("--loads %.40q: give two numbers, as in 5:500", o.loads)
	}
	bar := newBar("policies", 1)
	defer bar.Close() //nolint:errcheck // it is for looks
	return o.worker.SolveSet(ctx, low, high, func(found int, gap float64) {
		showPart(bar, fmt.Sprintf("%s, neighbours differ by %.2g %%", report.Count(found, "policy", "policies"), 100*gap), min(1, 0.01/max(gap, 1e-9)))
	})
}

func (o *selectionOptions) run(cmd *cobra.Command) error {
	began := time.Now()
	if err := o.check(cmd); err != nil {
		return err
	}
	if err := o.read(cmd); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	s, err := o.solve(ctx)
	if err != nil {
		return err
	}
	p := s.Policies[len(s.Policies)-1]
	r := &selectionResult{
		Accuracy: p.Accuracy, Violations: p.Violations, States: p.States, Seconds: time.Since(began).Seconds(), Models: len(p.Variants),
		LeftOut: selection.LeftOut(s.Variants), Policies: s.Policies, Note: s.Note, Out: o.out, Commit: buildCommit(),
	}
	d := r.document(s)
	if err := writePlan(o.out, s.WriteFile, o.report, d); err != nil {
		return err
	}
	return o.print(cmd.OutOrStdout(), r, d.WriteText)
}

// selectionResult is what the command says of policies. Accuracy, that of queries in time,
// violations, the part of queries that are not, and states are those for the highest load.
type selectionResult struct {
	Accuracy   float64             `json:"accuracy"`
	Violations float64             `json:"violations"`
	States     int                 `json:"states"`
	Seconds    float64             `json:"seconds"` // with reading
	Models     int                 `json:"models"`  // that may run
	LeftOut    []string            `json:"left_out,omitempty"`
	Policies   []*selection.Policy `json:"policies"`
	Note       string              `json:"note,omitempty"`
	Out        string              `json:"out,omitempty"`
	Commit     string              `json:"commit"`
}
