package data

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
)

// profileCommand measures as the daemon does in quiet moments, only without queries and for longer. It
// is the daemon, in fact, with its endpoints closed: what it measures holds for what serves.
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

// profileOptions are the flags. Zeros stand for what the configuration says.
type profileOptions struct {
	cli.Output
	serve   serving.Options
	groups  int
	repeats int
	limit   time.Duration
}

// profileResult is the JSON of profile.
type profileResult struct {
	// Measured counts earlier runs, too. Of those that were Planned, Skipped could not be measured.
	Measured int `json:"measured"`
	Planned  int `json:"planned"`
	Skipped  int `json:"skipped"`
	// Seconds are those of this run.
	Seconds float64 `json:"seconds"`
	// DriftPercent is by how much the device was slower than before at worst, Drifted that it is too much.
	DriftPercent float64 `json:"drift_percent"`
	Drifted      bool    `json:"drifted"`
	Interrupted  bool    `json:"interrupted"`
	// GivenUp are services whose model does not load.
	GivenUp []string `json:"given_up"`
	Device  string   `json:"device"`
	Commit  string   `json:"commit"`
}

// run measures until all is measured, the time is over, or somebody interrupts it. All three end well:
// every measurement is stored when it is made.
func (o *profileOptions) run(cmd *cobra.Command) error {
	c, err := o.serve.Config()
	if err != nil {
		return err
	}
	// The predictor is asked about groups as the policy overlap forms them. A log of decisions would be of
	// no queries.
	c.Policy, c.Decisions.Log = "overlap", false
	c.Profile.Groups, c.Profile.Repeats = cmp.Or(o.groups, c.Profile.Groups), cmp.Or(o.repeats, c.Profile.Repeats)
	// 0 is no limit, so a negative one may be meant as that, or as a mistake.
	if o.limit < 0 {
		return errors.New("--time must not be negative: give 0 for no limit")
	}
	if err := c.Validate(); err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	// A bar shows how far it is; lines of the log would tear it apart.
	log := serving.NewLogger(c, os.Stderr).Level(zerolog.WarnLevel)
	options := serving.DaemonOptions(log)
	options.Offline = true
	d, err := serving.NewDaemon(c, options)
	if err != nil {
		return err
	}
	// Loading and measuring share a bar, since a first start may load for minutes.
	show, end := cli.Bar()
	last, err := d.Measure(ctx, o.limit, func(r loop.Report) { showMeasuring(show, &r) })
	end()
	if err != nil {
		return err
	}
	return o.report(cmd.OutOrStdout(), &last, d.Device(), ctx)
}

// showMeasuring shows how many services are loaded, and then how many groups are measured.
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

// report says what was measured and what to do next. Nothing measured is an error, since a script would go
// on to train on nothing.
func (o *profileOptions) report(w io.Writer, r *loop.Report, device string, ctx context.Context) error {
	p := &r.Progress
	// An interrupted run has a result to print even where it has measured nothing.
	if interrupted := ctx.Err() != nil; o.JSON && (p.Total > 0 || interrupted) {
		return report.WriteJSON(w, profileResult{
			Measured: p.Done - p.Skipped, Planned: p.Total, Skipped: p.Skipped, Seconds: p.Spent.Seconds(),
			DriftPercent: p.Drift.Worst.Percent, Drifted: p.Drift.Exceeded, Interrupted: interrupted,
			GivenUp: append([]string{}, r.GivenUp...), Device: device, Commit: cli.Commit(),
		})
	}
	// Services whose model does not load keep nobody from measuring the others.
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
	// Some groups are measured again from time to time. If they take longer than before, so may all
	// others that were measured since, and the predictor would learn the clock of the device.
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
	// The line can be pasted: it names the same state, and of several devices each.
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
