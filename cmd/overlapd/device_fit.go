package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

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
	f.StringVar((*string)(&o.fit.Split), "split", string(o.fit.Split), "rows to test with: random or grouped")
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
	fit    fit.DeviceOptions
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
