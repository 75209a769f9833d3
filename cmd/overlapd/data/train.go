package data

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// trainCommand fits as the daemon does, but says how good the result is and can compare it with others. The
// daemon needs the predictor only; this command also shows whether to trust it.
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
	o.Groups.AddFlags(cmd)
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

// trainOptions are the flags of train, with report the page to write.
type trainOptions struct {
	Groups
	report string
}

// run trains and keeps the result. A fit takes a minute, so everything that can be wrong with the flags is
// found before it.
func (o *trainOptions) run(cmd *cobra.Command) error {
	// All that is wrong is told at once.
	if err := errors.Join(o.Fit.Validate(), cli.CheckOut("out", o.Out), cli.CheckOut("report", o.report)); err != nil {
		return err
	}
	d, operators, err := o.Read()
	if err != nil {
		return err
	}
	o.Fit.Operators = operators
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	// Groups from another machine may be scaled to isolated latencies of this one.
	solo, err := training.ReadSoloFile(o.Solo)
	if err == nil && len(solo) > 0 {
		d, _, err = fit.Calibrate(ctx, d, solo)
	}
	if err != nil {
		return err
	}
	// The bar goes before the result is printed, which may be to the same terminal.
	end := o.Bar()
	file, report, err := fit.Train(ctx, d, o.Fit)
	end()
	if err != nil {
		return err
	}
	// Whole seconds are enough to tell predictors apart, and the file can be compared.
	file.Created = time.Now().UTC().Truncate(time.Second)
	if err := o.keep(file, report); err != nil {
		return err
	}
	return o.Print(cmd.OutOrStdout(), struct {
		*fit.Report
		Out string `json:"out"`
		// Kept is that the state file has it, so that the daemon will use it.
		Kept bool `json:"kept"`
		// Commit belongs to the result, since only the same code repeats a fit to the digit.
		Commit string `json:"commit"`
	}{report, o.Out, len(o.Data) == 0, cli.Commit()}, report.Document().WriteText)
}

// keep writes the predictor where it is wanted: to a file, and to the state file that the groups came
// from. Groups of CSV files may be another device's, and their predictor stays out of the state.
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
	// It was not open during the fit. A daemon that has started meanwhile has it now.
	if err := o.state.use(changing, func(store *training.Store) error { return store.PutPredictor(f) }); err != nil {
		return fmt.Errorf("the predictor was trained but not stored: %w", err)
	}
	return nil
}
