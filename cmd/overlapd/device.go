package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/report"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

func deviceFitCommand() *cobra.Command {
	var o deviceFitOptions
	o.fit = fit.DefaultDeviceOptions()
	cmd := &cobra.Command{
		Use:   "fit",
		Short: "Make a device profile of measured operator groups",
		Long: `Fit makes a device profile of measured operator groups: how long any group of the
models takes, and how much its runs differ. A profile stands for the device in
simulations, and for a daemon that has none. It is never what a scheduler
predicts with; for that, train a predictor on other rows.

Solo times of whole models, where they are known from serving, prevail over the
groups for what runs alone.`,
		Example: `  overlapd device fit --data pairs/ --solo solo_ms.csv --out a100.device.json
  overlapd device fit --data pairs/ --data quad/ --out a100.device.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.fileFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.solo, "solo", "", "CSV file of what whole models take alone: model, batch, seq_len, min_ms")
	o.fitFlags(f, "write the profile to this file, by custom NAME.device.json", "their number says", "random or grouped")
	_ = cmd.MarkFlagRequired("data")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

type deviceFitOptions struct {
	fitOptions
	solo string
}

func (o *deviceFitOptions) run(cmd *cobra.Command) error {
	if err := errors.Join(o.fit.Validate(), checkOut("out", o.out)); err != nil {
		return err
	}
	if len(o.data) == 0 {
		return errors.New("no measured groups: name CSV files with --data")
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
		Short:   "Show what a device profile knows, and how far it is off",
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
	Models  []device.ModelInfo `json:"models"`
	device.Tested
	Solo   []device.SoloTime `json:"solo"`
	Spread device.Spread     `json:"spread"`
}

func showProfile(p *device.Profile) *shownProfile {
	return &shownProfile{
		Device: p.Device, Created: p.Created, Seed: p.Seed, Rows: p.Rows, Spans: p.Network.Spans,
		Models: p.Models(), Tested: p.Tested, Solo: p.Solo, Spread: p.Spread,
	}
}

func (s *shownProfile) document() *report.Document {
	d := new(report.Document)
	name := cmp.Or(s.Device, "a device that the measurements do not name")
	d.Text("%s, made of %d measured groups of up to %d spans, seed %d", name, s.Rows, s.Spans, s.Seed)
	models := report.NewTable("MODEL", "OPERATORS", "SIZES", "SEQUENCE LENGTHS")
	for _, m := range s.Models {
		models.Rowf("%s\t%d\t%s\t%s", m.Name, m.Operators, numbers(m.Sizes), numbers(m.SeqLens))
	}
	d.Table(models)
	s.addErrors(d)
	if len(s.Test.Spread) > 0 {
		d.Heading("standard deviation of runs over their median, of groups kept aside: measured, and as the device has it")
		t := report.NewTable("SPANS", "GROUPS", "QUANTILE", "MEASURED", "DEVICE")
		for _, q := range s.Test.Spread {
			t.Rowf("%d\t%d\t%.0f %%\t%.2f %%\t%.2f %%", q.Spans, q.Rows, 100*q.Part, 100*q.Measured, 100*q.Predicted)
		}
		d.Table(t)
	}
	if len(s.Solo) > 0 {
		d.Heading("whole models alone: as given, which the device takes, and as measured among the groups")
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
	d.Heading("off on groups kept aside, as the groups alone have it")
	t := report.NewTable("GROUPS OF", "ERROR", "ROWS")
	for _, of := range []struct {
		name string
		rows int
		mape float64
	}{
		{"one span", s.Test.Alone.Rows, s.Test.Alone.MAPE},
		{"several", s.Test.Several.Rows, s.Test.Several.MAPE},
		{"all", s.Test.Alone.Rows + s.Test.Several.Rows, c.Latency},
	} {
		if of.rows > 0 {
			t.Rowf("%s\t%.2f %%\t%d", of.name, of.mape, of.rows)
		}
	}
	d.Table(t)
	d.Text("of them a network that promises nothing is off %.2f %%, one that never falls with more operators %.2f %%;", c.Free, c.Kept)
	d.Text("%d are held up by a part of their spans, by at most %.1f %%", c.Raised, 100*c.RaisedMost)
	if c.RepeatedOf > 0 {
		d.Text("%d of one span were measured several times: each is off %.2f %% from the median of its others", c.RepeatedOf, c.Repeated)
	}
}
