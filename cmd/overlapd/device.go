package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

func deviceCommand() *cobra.Command {
	return group("device", "Make a device of measurements, to simulate or to emulate", deviceFitCommand(), deviceShowCommand())
}

func deviceFitCommand() *cobra.Command {
	o := deviceFitOptions{fit: fit.DefaultDeviceOptions()}
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
	f.StringVarP(&o.out, "out", "o", "", "write the profile to this file, by custom NAME.device.json")
	f.Uint64Var(&o.fit.Seed, "seed", o.fit.Seed, "seed of the split, the weights and the order of the rows")
	f.IntSliceVar(&o.fit.Hidden, "hidden", o.fit.Hidden, "units of the hidden layers")
	f.IntVar(&o.fit.Epochs, "epochs", 0, "times that all rows are seen, 0 for what their number says")
	f.StringVar(&o.fit.Split, "split", o.fit.Split, "rows to test with: random or grouped")
	f.Float64Var(&o.fit.TestFraction, "test", o.fit.TestFraction, "part of the rows, or of the configurations, to test with")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object")
	for _, name := range []string{"data", "out"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // there is no such flag
		}
	}
	return cmd
}

// deviceFitOptions says what a device is made of, and where it goes.
type deviceFitOptions struct {
	measuredOptions
	fit    fit.Options
	solo   string
	out    string
	asJSON bool
}

// deviceFitResult is what device fit prints with --json.
type deviceFitResult struct {
	*fit.DeviceReport
	Out    string `json:"out"`
	Commit string `json:"commit"`
}

func (o *deviceFitOptions) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := errors.Join(o.fit.Validate(), checkOut("out", o.out)); err != nil {
		return err
	}
	d, err := o.readFiles()
	if err != nil {
		return err
	}
	solo, err := readSolo(o.solo)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	bar := newFitBar()
	o.fit.Progress = bar.show
	p, report, err := fit.Device(ctx, d, solo, o.fit)
	bar.done()
	if err != nil {
		return err
	}
	p.Created = time.Now().UTC().Truncate(time.Second)
	if err := p.WriteFile(o.out); err != nil {
		return err
	}
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), deviceFitResult{report, o.out, buildCommit()})
	}
	if err := showProfile(p).writeText(cmd.OutOrStdout()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nmade in %.0f s, written to %s\n", report.Seconds, o.out)
	return err
}

// readSolo reads solo times, if a file of them is given.
func readSolo(path string) ([]training.SoloTime, error) {
	if path == "" {
		return nil, nil
	}
	return training.ReadSoloFile(path)
}

func deviceShowCommand() *cobra.Command {
	var asJSON bool
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
			if asJSON {
				return printJSON(cmd.OutOrStdout(), shown)
			}
			return shown.writeText(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// shownProfile is what device show prints.
type shownProfile struct {
	Device  string             `json:"device"`
	Created time.Time          `json:"created"`
	Seed    uint64             `json:"seed"`
	Rows    int                `json:"rows"`
	Spans   int                `json:"spans"` // most of a group
	Models  []shownDeviceModel `json:"models"`
	Test    device.Test        `json:"test"`
	Checks  device.Checks      `json:"checks"`
	Solo    []device.SoloTime  `json:"solo"`
	Spread  device.Spread      `json:"spread"`
}

type shownDeviceModel struct {
	Name      string `json:"name"`
	Operators int    `json:"operators"`
	Sizes     []int  `json:"sizes"`
	SeqLens   []int  `json:"seq_lens"`
}

func showProfile(p *device.Profile) *shownProfile {
	s := &shownProfile{
		Device: p.Device, Created: p.Created, Seed: p.Seed, Rows: p.Rows, Spans: p.Network.Spans,
		Test: p.Test, Checks: p.Checks, Solo: p.Solo, Spread: p.Spread,
	}
	for _, m := range p.Models() {
		s.Models = append(s.Models, shownDeviceModel(m))
	}
	return s
}

func (s *shownProfile) writeText(w io.Writer) error {
	var out strings.Builder
	name := s.Device
	if name == "" {
		name = "a device that the measurements do not name"
	}
	fmt.Fprintf(&out, "%s, made of %d measured groups of up to %d spans, seed %d\n\n", name, s.Rows, s.Spans, s.Seed)
	s.writeModels(&out)
	s.writeErrors(&out)
	s.writeSpread(&out)
	s.writeSolo(&out)
	_, err := io.WriteString(w, out.String())
	return err
}

func table(out io.Writer, rows func(io.Writer)) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows(t)
	_ = t.Flush() // a strings.Builder never fails
}

func (s *shownProfile) writeModels(out io.Writer) {
	table(out, func(t io.Writer) {
		fmt.Fprintln(t, "MODEL\tOPERATORS\tSIZES\tSEQUENCE LENGTHS\t")
		for _, m := range s.Models {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t\n", m.Name, m.Operators, numbers(m.Sizes), numbers(m.SeqLens))
		}
	})
}

func (s *shownProfile) writeErrors(out io.Writer) {
	c := s.Checks
	fmt.Fprintf(out, "\noff on groups kept aside, as the groups alone have it\n")
	table(out, func(t io.Writer) {
		for _, of := range []struct {
			name string
			rows int
			mape float64
		}{
			{"one span", s.Test.Alone.Rows, s.Test.Alone.MAPE}, {"several", s.Test.Several.Rows, s.Test.Several.MAPE},
			{"all", s.Test.Alone.Rows + s.Test.Several.Rows, c.Latency},
		} {
			if of.rows > 0 {
				fmt.Fprintf(t, "%s\t%.2f %%\tof %d\t\n", of.name, of.mape, of.rows)
			}
		}
	})
	fmt.Fprintf(out, "of them a network that promises nothing is off %.2f %%, one that never falls with more operators %.2f %%;\n", c.Free, c.Kept)
	fmt.Fprintf(out, "%d are held up by a part of their spans, by at most %.1f %%\n", c.Raised, 100*c.RaisedMost)
	if c.RepeatedOf > 0 {
		fmt.Fprintf(out, "%[2]d of one span were measured several times: each is off %.2[1]f %% from the median of its others\n", c.Repeated, c.RepeatedOf)
	}
}

func (s *shownProfile) writeSpread(out io.Writer) {
	if len(s.Test.Spread) == 0 {
		return
	}
	fmt.Fprintf(out, "\nstandard deviation of runs over their median, of groups kept aside: measured, and as the device has it\n")
	table(out, func(t io.Writer) {
		fmt.Fprintln(t, "SPANS\tGROUPS\tQUANTILE\tMEASURED\tDEVICE\t")
		for _, q := range s.Test.Spread {
			fmt.Fprintf(t, "%d\t%d\t%.0f %%\t%.2f %%\t%.2f %%\t\n", q.Spans, q.Rows, 100*q.Part, 100*q.Measured, 100*q.Predicted)
		}
	})
}

func (s *shownProfile) writeSolo(out io.Writer) {
	if len(s.Solo) == 0 {
		return
	}
	fmt.Fprintf(out, "\nwhole models alone: as given, which the device takes, and as measured among the groups\n")
	table(out, func(t io.Writer) {
		fmt.Fprintln(t, "MODEL\tSIZE\tSEQUENCE\tGIVEN\tGROUPS\tGIVEN IS\t")
		for _, m := range s.Solo {
			groups, off := "-", "-"
			if m.Groups > 0 {
				groups, off = fmt.Sprintf("%.2f ms", m.Groups/1e3), fmt.Sprintf("%+.1f %%", 100*(m.Micros/m.Groups-1))
			}
			fmt.Fprintf(t, "%s\t%d\t%d\t%.2f ms\t%s\t%s\t\n", m.Model, m.Size, m.SeqLen, m.Micros/1e3, groups, off)
		}
	})
}
