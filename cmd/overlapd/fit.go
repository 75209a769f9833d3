package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

func trainCommand() *cobra.Command {
	var o trainOptions
	o.Fit = fit.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "train",
		Short: "Fit a predictor to measured operator groups",
		Long: `Train fits a predictor, a small network that predicts how long operators of several
models take together, and reports its error on rows that it has not seen. The daemon
trains by itself; use train after profile, or to compare recipes. It reads the state
file of a configuration and stores the predictor there for the daemon. With --data it
reads CSV files and writes the predictor only to --out.

--split chooses the rows to test with: random takes single rows; grouped takes whole
configurations (all rows with the same models, batch sizes and sequence lengths),
which is harder; kfold takes each part in turn and then fits to all rows.`,
		Example: `  overlapd train --config overlapd.toml
  overlapd train --data pairs/ --out a100.predictor.json --report report.html
  overlapd train --data pairs/ --split grouped --compare --pairs
  overlapd train --data pairs/ --recipe paper --out paper.predictor.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.measuredOptions.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("data", "config")
	f := cmd.Flags()
	o.FitFlags(f, "write the predictor to this file", "of the recipe", "random, grouped or kfold")
	f.StringVar(&o.Fit.Recipe, "recipe", o.Fit.Recipe, "recipe: overlapd, or paper for that of the Abacus authors")
	f.IntVar(&o.Fit.Folds, "folds", o.Fit.Folds, "number of parts with --split kfold")
	f.BoolVar(&o.Fit.Compare, "compare", false, "compare with linear regression, support vector regression, and costs without a network")
	f.BoolVar(&o.Fit.Pairs, "pairs", false, "compare with one predictor for each set of models")
	f.StringVar(&o.report, "report", "", "write a page with tables and charts to this file")
	return cmd
}

type trainOptions struct {
	measuredOptions
	report string
}

func (o *trainOptions) run(cmd *cobra.Command) error {
	if err := errors.Join(o.Fit.Validate(), cli.CheckOut("out", o.Out), cli.CheckOut("report", o.report)); err != nil {
		return err
	}
	d, operators, err := o.read()
	if err != nil {
		return err
	}
	o.Fit.Operators = operators
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	solo, err := training.ReadSoloFile(o.Solo)
	if err == nil && len(solo) > 0 {
		d, _, err = fit.Calibrate(ctx, d, solo)
	}
	if err != nil {
		return err
	}
	end := o.Bar()
	file, report, err := fit.Train(ctx, d, o.Fit)
	end()
	if err != nil {
		return err
	}
	file.Created = time.Now().UTC().Truncate(time.Second)
	if err := o.keep(file, report); err != nil {
		return err
	}
	return o.Print(cmd.OutOrStdout(), struct {
		*fit.Report
		Out    string `json:"out"`
		Kept   bool   `json:"kept"` // in the state file
		Commit string `json:"commit"`
	}{report, o.Out, len(o.Data) == 0, cli.Commit()}, report.Document().WriteText)
}

func (o *trainOptions) keep(f *predictor.File, r *fit.Report) error {
	if o.Out != "" {
		if err := f.WriteFile(o.Out); err != nil {
			return err
		}
	}
	if o.report != "" {
		if err := textfile.Create(o.report, r.Document().WriteHTML); err != nil {
			return err
		}
	}
	if len(o.Data) > 0 {
		return nil
	}
	if err := o.state.use(changing, func(store *training.Store) error { return store.PutPredictor(f) }); err != nil {
		return fmt.Errorf("the predictor was trained but not stored: %w", err)
	}
	return nil
}

func profileCommand() *cobra.Command {
	var o profileOptions
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Measure operator groups on this device",
		Long: `Profile measures how long operators of several models take together, and stores the
measurements in the state file of the configuration. The daemon measures by itself
while it is idle; use profile to measure more before it starts. Nothing else should
use the device meanwhile.

It starts the workers of the configuration, as serve does, and runs each model alone
with each batch size and sequence length, and then groups as the scheduler forms them.
Different kinds of devices are measured at the same time. Interrupt it at any time;
the next run resumes.`,
		Example: `  overlapd profile --config overlapd.toml
  overlapd profile --config overlapd.toml --groups 2000 --time 30m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	cli.ConfigFlag(cmd, &o.serve.Path, "configuration file", "embedded")
	f.BoolVar(&o.serve.Embedded, "embedded", false, "use the built-in configuration: resnet50 and bert on the CPU")
	f.IntVar(&o.groups, "groups", 0, "total number of groups to measure, instead of the configuration's")
	f.IntVar(&o.repeats, "repeats", 0, "most runs of each group, instead of the configuration's")
	f.DurationVar(&o.limit, "time", 0, "stop after measuring for this long, 0 for no limit")
	o.Flags(f)
	cmd.MarkFlagsMutuallyExclusive("config", "embedded")
	return cmd
}

type profileOptions struct {
	cli.Output
	serve   serving.Options
	groups  int
	repeats int
	limit   time.Duration
}

// profileResult is the JSON of profile. Measured counts earlier runs too, Seconds does not.
type profileResult struct {
	Measured     int      `json:"measured"`
	Planned      int      `json:"planned"`
	Skipped      int      `json:"skipped"`
	Seconds      float64  `json:"seconds"`
	DriftPercent float64  `json:"drift_percent"`
	Drifted      bool     `json:"drifted"`
	Interrupted  bool     `json:"interrupted"`
	GivenUp      []string `json:"given_up"`
	Device       string   `json:"device"`
	Commit       string   `json:"commit"`
}

func (o *profileOptions) run(cmd *cobra.Command) error {
	c, err := o.serve.Config()
	if err != nil {
		return err
	}
	c.Policy, c.Decisions.Log = "overlap", false
	c.Profile.Groups, c.Profile.Repeats = cmp.Or(o.groups, c.Profile.Groups), cmp.Or(o.repeats, c.Profile.Repeats)
	if o.limit < 0 {
		return errors.New("--time must not be negative: give 0 for no limit")
	}
	if err := c.Validate(); err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	log := serving.NewLogger(c, os.Stderr).Level(zerolog.WarnLevel)
	options := serving.DaemonOptions(log)
	options.Offline = true
	d, err := serving.NewDaemon(c, options)
	if err != nil {
		return err
	}
	show, end := cli.Bar()
	last, err := d.Measure(ctx, o.limit, func(r loop.Report) { showMeasuring(show, &r) })
	end()
	if err != nil {
		return err
	}
	return o.report(cmd.OutOrStdout(), &last, d.Device(), ctx)
}

func showMeasuring(show func(doing string, done float64), r *loop.Report) {
	if r.Progress.Total == 0 {
		show("loading", float64(r.Ready)/float64(max(r.Services, 1)))
		return
	}
	what := "measuring"
	if r.Progress.Left > 0 {
		what += fmt.Sprintf(", %v left", r.Progress.Left.Round(time.Second))
	}
	show(what, float64(r.Progress.Done)/float64(r.Progress.Total))
}

func (o *profileOptions) report(w io.Writer, r *loop.Report, device string, ctx context.Context) error {
	p := &r.Progress
	if interrupted := ctx.Err() != nil; o.JSON && (p.Total > 0 || interrupted) {
		return report.WriteJSON(w, profileResult{
			Measured: p.Done - p.Skipped, Planned: p.Total, Skipped: p.Skipped, Seconds: p.Spent.Seconds(),
			DriftPercent: p.Drift.Worst.Percent, Drifted: p.Drift.Exceeded, Interrupted: interrupted,
			GivenUp: append([]string{}, r.GivenUp...), Device: device, Commit: cli.Commit(),
		})
	}
	if len(r.GivenUp) > 0 {
		fmt.Fprintf(w, "not measured, because the model does not load: %s\n", strings.Join(r.GivenUp, ", "))
	}
	if p.Total == 0 {
		return fmt.Errorf("nothing was measured: %s", cmp.Or(r.Reason, "interrupted while loading"))
	}
	fmt.Fprintf(w, "%d of %d measurements made in %v\n", p.Done-p.Skipped, p.Total, p.Spent.Round(time.Second/10))
	for _, s := range p.Skips {
		fmt.Fprintf(w, "skipped: %s batch size %d sequence length %d: %v\n", cmp.Or(s.Model, "a group"), s.Size, s.SeqLen, s.Err)
	}
	if n := len(p.Drift.Checks); n > 0 {
		fmt.Fprintf(w, "drift of the device: %+.1f %% at worst, in %s\n", p.Drift.Worst.Percent, report.Count(n, "check"))
	}
	if p.Drift.Exceeded {
		fmt.Fprintln(w, "The drift is large: something else used the device, or its clock changed. Measure again when the device is idle.")
	}
	if p.Done < p.Total {
		fmt.Fprintln(w, "To resume, run the same command again.")
		return nil
	}
	fmt.Fprintln(w, "All groups are measured. To measure more, raise --groups.")
	next := "overlapd train"
	if o.serve.Path != "" {
		next += " --config " + o.serve.Path
	}
	if len(r.Devices) == 1 {
		fmt.Fprintf(w, "Next: %s\n", next)
		return nil
	}
	for _, device := range r.Devices {
		fmt.Fprintf(w, "Next: %s --device '%s'\n", next, device)
	}
	return nil
}
