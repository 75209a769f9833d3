package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/reproduce"
)

func reproduceAbacusCommand() *cobra.Command {
	o := reproduce.DefaultOptions()
	var out output
	cmd := &cobra.Command{
		Use:   "abacus",
		Short: "The figures of the Abacus paper, on an emulated device",
		Long: `Abacus fits an emulated device to one half of what the authors of Abacus (SC '21)
measured, and predictors to the other, and has the production scheduler serve
their deployments on it, in virtual time. Beside each number of ours stand what
the paper says and what its authors published of their runs.

--data names a folder that holds abacus-a100/pairs, and what else there is:
abacus-a100/quad, solo_ms.csv, results_50qps_pairs.csv and
results_100qps_pairs.csv beside pairs, and maf_loads_per_minute.csv.

--out gets index.html, one page that opens offline, result.json, run.json with
what differs from run to run, and what was fitted, which the next run with the
same data and seed uses again. Twice with one seed gives the same result.`,
		Example: `  overlapd reproduce abacus --data data --out abacus
  overlapd reproduce abacus --data data --out abacus --figures 14,15,17 --seeds 2
  overlapd reproduce abacus --data data --out abacus --policies fcfs,overlap --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Commit = buildCommit()
			ctx, stop := interruptible(cmd)
			defer stop()
			bar := newBar("reading", 1)
			o.Progress = func(stage string, done float64, left time.Duration) {
				showPart(bar, fmt.Sprintf("%s, %v left", stage, left.Round(time.Second)), done)
			}
			result, err := reproduce.Run(ctx, o)
			_ = bar.Exit()
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), result, func(w io.Writer) error {
				times := result.Times()
				times.Text("all numbers and charts: %s", filepath.Join(o.Out, reproduce.PageFile))
				return errors.Join(result.Document().WriteText(w), times.WriteText(w))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Data, "data", "", "folder with the measurements of the authors")
	f.StringVarP(&o.Out, "out", "o", "", "folder for results and for what was fitted")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "runs of each deployment, each with its own seed")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the halves, of fitting, and of the first run")
	f.IntVar(&o.Queries, "queries", o.Queries, "queries of a run")
	f.IntVar(&o.Epochs, "epochs", 0, "times that fitting sees all rows, 0 for what the recipes say")
	f.StringSliceVar(&o.Figures, "figures", nil, "only these: "+strings.Join(reproduce.FigureNames(), ", "))
	f.StringSliceVar(&o.Policies, "policies", nil, "only these: "+strings.Join(reproduce.VariantNames(), ", "))
	out.flag(f)
	return cmd
}
