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
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/report"
)

func profileCommand() *cobra.Command {
	var o profileOptions
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Measure operator groups on this device",
		Long: `Profile starts the workers of a configuration, as serve does, and runs groups of
their operators: each model alone with each batch size and sequence length, then
groups of several, sampled as the scheduler forms them. What was measured goes
into the state file of the configuration. Interrupt it at any time; the next run
goes on where it stood. Nothing else should use the device meanwhile.`,
		Example: `  overlapd profile --config overlapd.toml
  overlapd profile --config overlapd.toml --groups 2000 --time 30m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.serve.path, "config", "c", "", "configuration file")
	f.BoolVar(&o.serve.embedded, "embedded", false, "the built-in configuration: resnet50 and bert on the CPU")
	f.IntVar(&o.groups, "groups", 0, "groups to measure in all, instead of the configuration's")
	f.IntVar(&o.repeats, "repeats", 0, "runs of each group at most, instead of the configuration's")
	f.DurationVar(&o.limit, "time", 0, "stop after this time of measuring, 0 for no limit")
	o.flag(f)
	cmd.MarkFlagsMutuallyExclusive("config", "embedded")
	return cmd
}

type profileOptions struct {
	output
	serve   serveOptions
	groups  int
	repeats int
	limit   time.Duration
}

// profileResult is the JSON of profile. Measured counts all measurements of the
// plan, those of earlier runs too; Seconds is the time of this run alone. GivenUp
// names services.
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
	c, err := o.serve.config()
	if err != nil {
		return err
	}
	c.Policy, c.Decisions.Log = "overlap", false
	c.Profile.Groups, c.Profile.Repeats = cmp.Or(o.groups, c.Profile.Groups), cmp.Or(o.repeats, c.Profile.Repeats)
	if o.limit < 0 {
		return errors.New("--time must not be negative")
	}
	if err := c.Validate(); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	log := newLogger(c, os.Stderr).Level(zerolog.WarnLevel)
	d, err := newDaemon(c, log, true)
	if err != nil {
		return err
	}
	bar := newBar("loading", 1)
	last, err := d.Measure(ctx, o.limit, func(r loop.Report) { showMeasuring(bar, &r) })
	_ = bar.Finish()
	if err != nil {
		return err
	}
	return o.report(cmd.OutOrStdout(), &last, d.Device(), ctx)
}

func showMeasuring(bar *progressbar.ProgressBar, r *loop.Report) {
	what := fmt.Sprintf("loading, %d of %d services are ready", r.Ready, r.Services)
	if r.Progress.Total > 0 {
		what = "measuring"
		bar.ChangeMax(r.Progress.Total)
		if r.Progress.Left > 0 {
			what += fmt.Sprintf(", %v left", r.Progress.Left.Round(time.Second))
		}
	}
	bar.Describe(what)
	_ = bar.Set(r.Progress.Done)
}

func (o *profileOptions) report(w io.Writer, r *loop.Report, device string, ctx context.Context) error {
	p := &r.Progress
	if interrupted := ctx.Err() != nil; o.json && (p.Total > 0 || interrupted) {
		return report.WriteJSON(w, profileResult{
			Measured: p.Done - p.Skipped, Planned: p.Total, Skipped: p.Skipped, Seconds: p.Spent.Seconds(),
			DriftPercent: p.Drift.Worst.Percent, Drifted: p.Drift.Exceeded, Interrupted: interrupted,
			GivenUp: append([]string{}, r.GivenUp...), Device: device, Commit: buildCommit(),
		})
	}
	if len(r.GivenUp) > 0 {
		fmt.Fprintf(w, "not measured, since the model does not load: %s\n", strings.Join(r.GivenUp, ", "))
	}
	if p.Total == 0 {
		return fmt.Errorf("nothing was measured: %s", cmp.Or(r.Reason, "interrupted while loading"))
	}
	fmt.Fprintf(w, "%d of %d measurements made, %v of measuring\n", p.Done-p.Skipped, p.Total, p.Spent.Round(time.Second/10))
	for _, s := range p.Skips {
		fmt.Fprintf(w, "left out: %s batch size %d sequence length %d: %v\n", cmp.Or(s.Model, "a group"), s.Size, s.SeqLen, s.Err)
	}
	if n := len(p.Drift.Checks); n > 0 {
		fmt.Fprintf(w, "drift of the device: %+.1f %% at worst, in %d checks\n", p.Drift.Worst.Percent, n)
	}
	if p.Drift.Exceeded {
		fmt.Fprintln(w, "That is much: something else used the device, or it changed its speed. Measure again when it is calm.")
	}
	if p.Done < p.Total {
		fmt.Fprintln(w, "Run the same command again to go on.")
		return nil
	}
	next := "overlapd train"
	if o.serve.path != "" {
		next += " --config " + o.serve.path
	}
	fmt.Fprintf(w, "Next: %s\n", next)
	return nil
}
