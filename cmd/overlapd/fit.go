package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

func trainCommand() *cobra.Command {
	var o trainOptions
	o.fit = fit.DefaultOptions()
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
	o.fitFlags(f, "write the predictor to this file", "of the recipe", "random, grouped or kfold")
	f.StringVar(&o.fit.Recipe, "recipe", o.fit.Recipe, "recipe: overlapd, or paper for that of the Abacus authors")
	f.IntVar(&o.fit.Folds, "folds", o.fit.Folds, "number of parts with --split kfold")
	f.BoolVar(&o.fit.Compare, "compare", false, "compare with linear regression, support vector regression, and costs without a network")
	f.BoolVar(&o.fit.Pairs, "pairs", false, "compare with one predictor for each set of models")
	f.StringVar(&o.report, "report", "", "write a page with tables and charts to this file")
	return cmd
}

// fitOptions are the flags of commands that fit a network to measured groups.
type fitOptions struct {
	measuredOptions
	output
	fit  fit.Options
	out  string
	solo string
}

func (o *fitOptions) fitFlags(f *pflag.FlagSet, out, epochs, splits string) {
	f.StringVarP(&o.out, "out", "o", "", out)
	f.StringVar(&o.solo, "solo", "", "CSV file of isolated latencies to calibrate all groups to: model, batch, seq_len, min_ms")
	f.Uint64Var(&o.fit.Seed, "seed", o.fit.Seed, "seed of the split, the weights and the order of the rows")
	f.IntSliceVar(&o.fit.Hidden, "hidden", o.fit.Hidden, "units of the hidden layers")
	f.IntVar(&o.fit.Epochs, "epochs", 0, "passes over the rows, 0 for the number "+epochs)
	f.StringVar(&o.fit.Split, "split", o.fit.Split, "rows to test with: "+splits)
	f.Float64Var(&o.fit.TestFraction, "test", o.fit.TestFraction, "fraction of the rows, or of the configurations, to test with")
	o.flag(f)
}

// bar returns a progress bar that shows the epochs of the present stage.
func (o *fitOptions) bar() *progressbar.ProgressBar {
	bar := newBar("fitting", 1)
	o.fit.Progress = func(p fit.Progress) {
		bar.ChangeMax(p.Epochs + 1) // a full bar would end its line
		bar.Describe(fmt.Sprintf("%s: loss %.4f, %v left", p.Stage, p.Loss, p.Left.Round(time.Second)))
		_ = bar.Set(p.Epoch)
	}
	return bar
}

type trainOptions struct {
	fitOptions
	report string
}

func (o *trainOptions) run(cmd *cobra.Command) error {
	if err := errors.Join(o.fit.Validate(), checkOut("out", o.out), checkOut("report", o.report)); err != nil {
		return err
	}
	d, operators, err := o.read()
	if err != nil {
		return err
	}
	o.fit.Operators = operators
	ctx, stop := interruptible(cmd)
	defer stop()
	solo, err := readSolo(o.solo)
	if err == nil && len(solo) > 0 {
		d, _, err = fit.Calibrate(ctx, d, solo)
	}
	if err != nil {
		return err
	}
	bar := o.bar()
	file, report, err := fit.Train(ctx, d, o.fit)
	_ = bar.Exit()
	if err != nil {
		return err
	}
	file.Created = time.Now().UTC().Truncate(time.Second)
	if err := o.keep(file, report); err != nil {
		return err
	}
	return o.print(cmd.OutOrStdout(), struct {
		*fit.Report
		Out    string `json:"out"`
		Kept   bool   `json:"kept"` // in the state file
		Commit string `json:"commit"`
	}{report, o.out, len(o.data) == 0, buildCommit()}, report.Document().WriteText)
}

func (o *trainOptions) keep(f *predictor.File, r *fit.Report) error {
	if o.out != "" {
		if err := f.WriteFile(o.out); err != nil {
			return err
		}
	}
	if o.report != "" {
		if err := textfile.Create(o.report, r.Document().WriteHTML); err != nil {
			return err
		}
	}
	if len(o.data) > 0 {
		return nil
	}
	if err := o.state.use(changing, func(store *training.Store) error { return store.PutPredictor(f) }); err != nil {
		return fmt.Errorf("the predictor was trained but not stored: %w", err)
	}
	return nil
}

// fitOrder is the input of a process that fits.
type fitOrder struct {
	Dataset   *training.Dataset
	Operators map[string][]training.OperatorTimes
}

// fitCommand fits a predictor for the daemon that starts it. The order comes on
// standard input, the predictor goes to standard output.
func fitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "fit",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const lowest = 19 // serving goes first
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, lowest); err != nil {
				return err
			}
			var order fitOrder
			if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
				return fmt.Errorf("reading the measurements failed: %w", err)
			}
			if order.Dataset == nil {
				return errors.New("there is no dataset")
			}
			o := fit.DefaultOptions()
			o.Operators = order.Operators
			f, _, err := fit.Train(cmd.Context(), order.Dataset, o)
			if err != nil {
				return err
			}
			f.Created = time.Now().UTC()
			return json.NewEncoder(os.Stdout).Encode(f)
		},
	}
}

// fitElsewhere fits in a process of its own, with which its memory ends.
func fitElsewhere(ctx context.Context, d *training.Dataset, operators map[string][]training.OperatorTimes) (*predictor.File, error) {
	order, err := json.Marshal(fitOrder{d, operators})
	if err != nil {
		return nil, err
	}
	line := self("fit")
	var out bytes.Buffer
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(order), &out
	p, err := child.Start(cmd, nil)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, p.Kill)()
	<-p.Done()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !p.Succeeded():
		return nil, fmt.Errorf("%s: %s", p.Status(), strings.TrimSpace(p.Tail()))
	}
	return predictor.Read(&out)
}

func deviceFitCommand() *cobra.Command {
	var o deviceFitOptions
	o.fit = fit.DefaultDeviceOptions()
	cmd := &cobra.Command{
		Use:   "fit",
		Short: "Fit a device profile to measured operator groups",
		Long: `Fit makes a device profile from measured operator groups: how long any group of the
models takes, and how much its runs vary. Use the profile as the device in simulate, or
in a daemon with device = "emulated". The scheduler never predicts with it; train a
predictor for that, on other rows, calibrated with the same --solo.

With --format linear the device is exact: a batch of b queries takes alpha*b + beta,
and operators of a group run one after another. The CSV file has a row for each model
with the columns model, alpha_ms and beta_ms. Optional columns are gpu, of which
--device names one; slo_ms, the default target in simulations; and exit_points, the
number of operators. Other flags do not apply.`,
		Example: `  overlapd device fit --data pairs/ --solo solo_ms.csv --out a100.device.json
  overlapd device fit --data pairs/ --data quad/ --out a100.device.json --json
  overlapd device fit --format linear --data profiles.csv --device A100 --out a100.device.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.fileFlags(cmd)
	f := cmd.Flags()
	o.fitFlags(f, "write the profile to this file, usually NAME.device.json", "that fits their count", "random or grouped")
	f.Lookup("format").Usage = "format of the CSV files: abacus, or linear for a file of models"
	f.Lookup("device").Usage = "device on which the groups of the CSV files were measured, in words; of linear models also which of several"
	_ = cmd.MarkFlagRequired("data")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

type deviceFitOptions struct{ fitOptions }

func (o *deviceFitOptions) run(cmd *cobra.Command) error {
	if err := errors.Join(o.fit.Validate(), checkOut("out", o.out)); err != nil {
		return err
	}
	if len(o.data) == 0 {
		return errors.New("no measured groups: name CSV files with --data")
	}
	if o.format == formatLinear {
		return o.linear(cmd)
	}
	d, _, err := o.read()
	if err != nil {
		return err
	}
	solo, err := readSolo(o.solo)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	bar := o.bar()
	p, report, err := fit.Device(ctx, d, solo, o.fit)
	_ = bar.Exit()
	if err != nil {
		return err
	}
	p.Created = time.Now().UTC().Truncate(time.Second)
	if err := p.WriteFile(o.out); err != nil {
		return err
	}
	text := showProfile(p).document()
	text.Heading("made in %.0f s, written to %s", report.Seconds, o.out)
	return o.print(cmd.OutOrStdout(), struct {
		*fit.DeviceReport
		Out    string `json:"out"`
		Commit string `json:"commit"`
	}{report, o.out, buildCommit()}, text.WriteText)
}

// formatLinear is the form of a file of models whose time is linear in the batch size.
const formatLinear = "linear"

// linear makes a device without fitting anything.
func (o *deviceFitOptions) linear(cmd *cobra.Command) error {
	for _, name := range []string{"solo", "seed", "hidden", "epochs", "split", "test"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s applies to measured groups, and --format %s has none; leave it out", name, formatLinear)
		}
	}
	if len(o.data) != 1 {
		return fmt.Errorf("--format %s takes one file, and --data names %d", formatLinear, len(o.data))
	}
	p, err := device.ReadLinear(o.data[0], o.device)
	if err != nil {
		return err
	}
	p.Created = time.Now().UTC().Truncate(time.Second)
	if err := p.WriteFile(o.out); err != nil {
		return err
	}
	text, names := showProfile(p).document(), []string{}
	text.Heading("written to %s", o.out)
	for i := range p.Network.Models {
		names = append(names, p.Network.Models[i].Name)
	}
	return o.print(cmd.OutOrStdout(), struct {
		Models []string `json:"models"`
		Rows   int      `json:"rows"`
		Device string   `json:"device"`
		Out    string   `json:"out"`
		Commit string   `json:"commit"`
	}{names, p.Rows, p.Device, o.out, buildCommit()}, text.WriteText)
}

// readSolo reads solo times, if a file of them is given.
func readSolo(path string) ([]training.SoloTime, error) {
	if path == "" {
		return nil, nil
	}
	return training.ReadSoloFile(path)
}

func deviceShowCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "show FILE",
		Short:   "Show what a device profile covers, and its error",
		Example: "  overlapd device show a100.device.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := device.ReadFile(args[0])
			if err != nil {
				return err
			}
			shown := showProfile(p)
			return out.print(cmd.OutOrStdout(), shown, shown.document().WriteText)
		},
	}
	out.flag(cmd.Flags())
	return cmd
}

// shownProfile is the JSON of device show. Spans is the most of a group.
type shownProfile struct {
	Device  string             `json:"device"`
	Created time.Time          `json:"created"`
	Seed    uint64             `json:"seed"`
	Rows    int                `json:"rows"`
	Spans   int                `json:"spans"`
	Linear  bool               `json:"linear,omitempty"`
	Models  []device.ModelInfo `json:"models"`
	device.Tested
	Solo   []device.SoloTime `json:"solo"`
	Spread device.Spread     `json:"spread"`
}

func showProfile(p *device.Profile) *shownProfile {
	return &shownProfile{
		Device: p.Device, Created: p.Created, Seed: p.Seed, Rows: p.Rows, Spans: p.Network.Spans, Linear: p.Linear(),
		Models: p.Models(), Tested: p.Tested, Solo: p.Solo, Spread: p.Spread,
	}
}

func (s *shownProfile) document() *report.Document {
	d := new(report.Document)
	name := cmp.Or(s.Device, "a device that the measurements do not name")
	if s.Linear {
		d.Text("%s: the time of a batch is linear in its size, and operators of a group run one after another", name)
		models := report.NewTable("MODEL", "OPERATORS", "LARGEST BATCH", "TARGET")
		for _, m := range s.Models {
			models.Rowf("%s\t%d\t%d\t%s", m.Name, m.Operators, slices.Max(m.Sizes), orDash("%g ms", m.TargetMillis))
		}
		d.Table(models)
		return d
	}
	d.Text("%s, fitted to %s of up to %s, seed %d", name, report.Count(s.Rows, "measured group"), report.Count(s.Spans, "span"), s.Seed)
	models := report.NewTable("MODEL", "OPERATORS", "SIZES", "SEQUENCE LENGTHS")
	for _, m := range s.Models {
		models.Rowf("%s\t%d\t%s\t%s", m.Name, m.Operators, numbers(m.Sizes), numbers(m.SeqLens))
	}
	d.Table(models)
	s.addErrors(d)
	if len(s.Test.Spread) > 0 {
		d.Heading("standard deviation of runs over their median, of groups held out: measured, and of the profile")
		t := report.NewTable("SPANS", "GROUPS", "QUANTILE", "MEASURED", "DEVICE")
		for _, q := range s.Test.Spread {
			t.Rowf("%d\t%d\t%.0f %%\t%.2f %%\t%.2f %%", q.Spans, q.Rows, 100*q.Part, 100*q.Measured, 100*q.Predicted)
		}
		d.Table(t)
	}
	if len(s.Solo) > 0 {
		d.Heading("isolated latencies: as given, to which all groups were calibrated, and as measured among the groups")
		t := report.NewTable("MODEL", "SIZE", "SEQUENCE", "GIVEN", "GROUPS", "GIVEN IS")
		for _, m := range s.Solo {
			groups, off := "-", "-"
			if m.Groups > 0 {
				groups, off = fmt.Sprintf("%.2f ms", m.Groups/1e3), fmt.Sprintf("%+.1f %%", 100*(m.Micros/m.Groups-1))
			}
			t.Rowf("%s\t%d\t%d\t%.2f ms\t%s\t%s", m.Model, m.Size, m.SeqLen, m.Micros/1e3, groups, off)
		}
		d.Table(t)
	}
	return d
}

func (s *shownProfile) addErrors(d *report.Document) {
	c := s.Checks
	d.Heading("error on held-out groups")
	t := report.NewTable("GROUPS OF", "ERROR", "ROWS")
	for _, of := range []struct {
		name string
		rows int
		mape float64
	}{
		{"one model", s.Test.Alone.Rows, s.Test.Alone.MAPE},
		{"several", s.Test.Several.Rows, s.Test.Several.MAPE},
		{"all", s.Test.Alone.Rows + s.Test.Several.Rows, c.Latency},
	} {
		if of.rows > 0 {
			t.Rowf("%s\t%.2f %%\t%d", of.name, of.mape, of.rows)
		}
	}
	d.Table(t)
	d.Text("an unconstrained network has an error of %.2f %%, and one that never falls with more operators %.2f %%;", c.Free, c.Kept)
	d.Text("%d groups are raised to the time of a part of them, by at most %.1f %%", c.Raised, 100*c.RaisedMost)
	if c.RepeatedOf > 0 {
		d.Text("%d groups of one model were measured several times: each differs %.2f %% from the median of its repeats", c.RepeatedOf, c.Repeated)
	}
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
	f.StringVarP(&o.serve.path, "config", "c", "", "configuration file (default "+localConfig+" in this folder, if there is one)")
	takeLocal(cmd, &o.serve.path, "embedded")
	f.BoolVar(&o.serve.embedded, "embedded", false, "use the built-in configuration: resnet50 and bert on the CPU")
	f.IntVar(&o.groups, "groups", 0, "total number of groups to measure, instead of the configuration's")
	f.IntVar(&o.repeats, "repeats", 0, "most runs of each group, instead of the configuration's")
	f.DurationVar(&o.limit, "time", 0, "stop after measuring for this long, 0 for no limit")
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
	c, err := o.serve.config()
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
	ctx, stop := interruptible(cmd)
	defer stop()
	log := newLogger(c, os.Stderr).Level(zerolog.WarnLevel)
	options := daemonOptions(log)
	options.Offline = true
	d, err := newDaemon(c, options)
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
	what := fmt.Sprintf("loading, services ready: %d of %d", r.Ready, r.Services)
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
	if o.serve.path != "" {
		next += " --config " + o.serve.path
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
