package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/report"
	"github.com/overlapd/overlapd/selection"
)

type selectionOptions struct {
	output
	format, data, task       string
	discretization, batching string
	target                   time.Duration
	models                   int
	worker                   selection.Worker
}

func planSelectionCommand() *cobra.Command {
	o := selectionOptions{format: "ramsis", task: "image", discretization: "fld", batching: "max"}
	o.worker = selection.Worker{Workers: 1, CV: 1, Levels: 100}
	cmd := &cobra.Command{
		Use:   "selection",
		Short: "Say which variant of a service runs the next batch",
		Long: `Selection computes which of several models that can answer for a service runs the next
batch, given how many queries wait and how much time the first of them has left, so that
as many as possible are answered in time by as accurate a model as possible (RAMSIS).
It says what accuracy and violations are to be expected of that at a load.

--data is a folder with accuracy_percent.csv and profile_summary_ms.csv, the accuracies
and latencies (95th percentile, by batch) that come with that paper. Models that are
slower than a more accurate one are left out. Queries come as a Poisson process, and
are dealt out to equal workers in turn; those that are late are answered all the same.`,
		Example: `  overlapd plan selection --data ramsis --task image --target 300ms --workers 60 --load 2000
  overlapd plan selection --data ramsis --task text --target 100ms --workers 20 --load 400 --discretization md --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", o.format, "of the data: ramsis")
	f.StringVar(&o.data, "data", "", "folder with accuracies and latencies")
	f.StringVar(&o.task, "task", o.task, "image or text")
	f.DurationVar(&o.target, "target", 0, "time from a query's arrival to its answer, as in 300ms")
	f.IntVar(&o.worker.Workers, "workers", o.worker.Workers, "how many there are")
	f.Float64Var(&o.worker.Rate, "load", 0, "queries a second for all workers")
	f.StringVar(&o.discretization, "discretization", o.discretization, "levels of the time left: fld, equally far apart, or md, one at each latency")
	f.IntVar(&o.worker.Levels, "levels", o.worker.Levels, "how many levels fld has")
	f.StringVar(&o.batching, "batching", o.batching, "max, a batch has all that wait, or variable, it may have less")
	f.IntVar(&o.models, "models", 0, "how many models to choose from: fewer of the best, or more that are interpolated; 0 for the best")
	o.flag(f)
	return cmd
}

// Limits of what selection chooses from and for: models, and queries that wait (RAMSIS,
// section 6), if a model can take so many at once.
const (
	maxModels    = 1000
	longestQueue = 32
)

func (o *selectionOptions) run(cmd *cobra.Command) error {
	began := time.Now()
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
	switch {
	case o.data == "" || o.target <= 0 || !cmd.Flags().Changed("load"):
		return errors.New("a policy for what? Give --data, a folder with accuracies and latencies, --target, a time above 0, and --load, queries a second")
	case o.discretization == "md":
		if cmd.Flags().Changed("levels") {
			return fmt.Errorf("--levels is for --discretization fld: leave out one of them")
		}
		o.worker.Levels = 0
	case o.worker.Levels < 1:
		return fmt.Errorf("--levels %d: give a number above 0", o.worker.Levels)
	case o.models < 0 || o.models > maxModels:
		return fmt.Errorf("--models %d: give a number from 1 to %d", o.models, maxModels)
	}
	variants, err := selection.ReadRAMSIS(o.data, o.task)
	if err != nil {
		return err
	}
	if variants = selection.Front(variants); o.models > 0 {
		variants = selection.Resize(variants, o.models)
	}
	longest := 0
	for _, v := range variants {
		longest = max(longest, len(v.Latency))
	}
	o.worker.Queue = min(longest, longestQueue)
	o.worker.Variants, o.worker.Variable = variants, o.batching == "variable"
	o.worker.Target = float64(o.target) / float64(time.Millisecond)
	ctx, stop := interruptible(cmd)
	defer stop()
	p, err := o.worker.Solve(ctx)
	if err != nil {
		return err
	}
	r := selectionResult{
		Accuracy: p.Accuracy, Violations: p.Violations, States: p.States, Seconds: time.Since(began).Seconds(),
		Models: len(p.Variants), Commit: buildCommit(),
	}
	return o.print(cmd.OutOrStdout(), r, func(w io.Writer) error { return r.document(p).WriteText(w) })
}

// selectionResult is what the command says of a policy.
type selectionResult struct {
	Accuracy   float64 `json:"accuracy"`   // of queries in time, expected
	Violations float64 `json:"violations"` // part of all queries, expected
	States     int     `json:"states"`
	Seconds    float64 `json:"seconds"` // with reading
	Models     int     `json:"models"`
	Commit     string  `json:"commit"`
}

func (r *selectionResult) document(p *selection.Policy) *report.Document {
	d := new(report.Document)
	d.Text("accuracy %.3f of queries in time, and %.4f %% late, are to be expected; %s, %d states, in %.2f s",
		r.Accuracy, 100*r.Violations, report.Count(r.Models, "model"), r.States, r.Seconds)
	t := report.NewTable("model", "accuracy", "ms alone")
	for _, v := range p.Variants[:min(len(p.Variants), mostRows)] {
		t.Rowf("%s\t%.3f\t%.4g", v.Name, v.Accuracy, v.Latency[0])
	}
	d.Table(t)
	if more := len(p.Variants) - mostRows; more > 0 {
		d.Text("%d more models are not shown", more)
	}
	return d
}
