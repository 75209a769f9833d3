package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

func deviceFitCommand() *cobra.Command {
	var o deviceFitOptions
	o.Fit = fit.DefaultDeviceOptions()
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
		Example: `  overlapd-lab device fit --data pairs/ --solo solo_ms.csv --out a100.device.json
  overlapd-lab device fit --data pairs/ --data quad/ --out a100.device.json --json
  overlapd-lab device fit --format linear --data profiles.csv --device A100 --out a100.device.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.FileFlags(cmd)
	f := cmd.Flags()
	o.FitFlags(f, "write the profile to this file, usually NAME.device.json", "that fits their count", "random or grouped")
	f.Lookup("format").Usage = "format of the CSV files: abacus, or linear for a file of models"
	f.Lookup("device").Usage = "device on which the groups of the CSV files were measured, in words; of linear models also which of several"
	_ = cmd.MarkFlagRequired("data")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

type deviceFitOptions struct{ cli.Measured }

func (o *deviceFitOptions) run(cmd *cobra.Command) error {
	if err := errors.Join(o.Fit.Validate(), cli.CheckOut("out", o.Out)); err != nil {
		return err
	}
	if len(o.Data) == 0 {
		return errors.New("no measured groups: name CSV files with --data")
	}
	if o.Format == formatLinear {
		return o.linear(cmd)
	}
	d, err := o.ReadFiles()
	if err != nil {
		return err
	}
	solo, err := training.ReadSoloFile(o.Solo)
	if err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	end := o.Bar()
	p, report, err := fit.Device(ctx, d, solo, o.Fit)
	end()
	if err != nil {
		return err
	}
	p.Created = time.Now().UTC().Truncate(time.Second)
	if err := p.WriteFile(o.Out); err != nil {
		return err
	}
	text := showProfile(p).document()
	text.Heading("made in %.0f s, written to %s", report.Seconds, o.Out)
	return o.Print(cmd.OutOrStdout(), struct {
		*fit.DeviceReport
		Out    string `json:"out"`
		Commit string `json:"commit"`
	}{report, o.Out, cli.Commit()}, text.WriteText)
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
	if len(o.Data) != 1 {
		return fmt.Errorf("--format %s takes one file, and --data names %d", formatLinear, len(o.Data))
	}
	p, err := device.ReadLinear(o.Data[0], o.Device)
	if err != nil {
		return err
	}
	p.Created = time.Now().UTC().Truncate(time.Second)
	if err := p.WriteFile(o.Out); err != nil {
		return err
	}
	text, names := showProfile(p).document(), []string{}
	text.Heading("written to %s", o.Out)
	for i := range p.Network.Models {
		names = append(names, p.Network.Models[i].Name)
	}
	return o.Print(cmd.OutOrStdout(), struct {
		Models []string `json:"models"`
		Rows   int      `json:"rows"`
		Device string   `json:"device"`
		Out    string   `json:"out"`
		Commit string   `json:"commit"`
	}{names, p.Rows, p.Device, o.Out, cli.Commit()}, text.WriteText)
}

func deviceShowCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "show FILE",
		Short:   "Show what a device profile covers, and its error",
		Example: "  overlapd-lab device show a100.device.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := device.ReadFile(args[0])
			if err != nil {
				return err
			}
			shown := showProfile(p)
			return out.Print(cmd.OutOrStdout(), shown, shown.document().WriteText)
		},
	}
	out.Flags(cmd.Flags())
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
			models.Rowf("%s\t%d\t%d\t%s", m.Name, m.Operators, slices.Max(m.Sizes), report.OrDash("%g ms", m.TargetMillis))
		}
		d.Table(models)
		return d
	}
	d.Text("%s, fitted to %s of up to %s, seed %d", name, report.Count(s.Rows, "measured group"), report.Count(s.Spans, "span"), s.Seed)
	models := report.NewTable("MODEL", "OPERATORS", "SIZES", "SEQUENCE LENGTHS")
	for _, m := range s.Models {
		models.Rowf("%s\t%d\t%s\t%s", m.Name, m.Operators, report.Numbers(m.Sizes), report.Numbers(m.SeqLens))
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
