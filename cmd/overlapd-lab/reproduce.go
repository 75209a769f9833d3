package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/lab/reproduce"
)

func reproduceAbacusCommand() *cobra.Command {
	o := reproduce.DefaultOptions()
	var out tables
	cmd := &cobra.Command{
		Use:   "abacus",
		Short: "Reproduce the figures of the Abacus paper, on an emulated device",
		Long: `Abacus reproduces the figures of the Abacus paper (SC '21). It fits an emulated device
to one half of the authors' measurements and predictors to the other half, and runs the
production scheduler on their deployments in virtual time. Each result is printed with
the number in the paper and that of the authors' published runs.

--data names a folder with abacus-a100/pairs, and optionally abacus-a100/quad,
solo_ms.csv, results_50qps_pairs.csv and results_100qps_pairs.csv in the same folder as
pairs, and maf_loads_per_minute.csv.

--out gets index.html, a self-contained page; result.json; run.json with what differs
from run to run; and the fitted device and predictors, which the next run with the same
data and seed uses again. The same seed gives the same result.`,
		Example: `  overlapd-lab reproduce abacus --data data --out abacus
  overlapd-lab reproduce abacus --data data --out abacus --figures 14,15,17 --seeds 2
  overlapd-lab reproduce abacus --data data --out abacus --policies edf,overlap --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return reproduceWith(cmd, reproduce.Run, &o, &out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Data, "data", "", "folder with the authors' measurements")
	f.StringVarP(&o.Out, "out", "o", "", "folder for results, and for the fitted device and predictors")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "runs of each deployment, each with its own seed")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the halves, of fitting, and of the first run")
	f.IntVar(&o.Queries, "queries", o.Queries, "queries of a run")
	f.IntVar(&o.Epochs, "epochs", 0, "passes over the rows when fitting, 0 for the number of the recipes")
	f.StringSliceVar(&o.Figures, "figures", nil, "only these figures: "+strings.Join(reproduce.FigureNames(), ", "))
	f.StringSliceVar(&o.Policies, "policies", nil, "only these policies: "+strings.Join(reproduce.VariantNames(), ", "))
	out.Flags(f)
	return cmd
}

// tables is how a reproduction is printed.
type tables struct {
	cli.Output
	markdown bool
}

func (t *tables) Flags(f *pflag.FlagSet) {
	t.Output.Flags(f)
	f.BoolVar(&t.markdown, "markdown", false, "print the figures as Markdown tables, as in docs/benchmarks")
}

// reproduceWith shows progress and what came out.
func reproduceWith(cmd *cobra.Command, run func(context.Context, reproduce.Options) (*reproduce.Result, error), o *reproduce.Options, out *tables) error {
	o.Commit = cli.Commit()
	ctx, stop := cli.Interruptible(cmd)
	defer stop()
	show, end := cli.Bar()
	o.Progress = func(stage string, done float64, left time.Duration) {
		show(fmt.Sprintf("%s, %v left", stage, left.Round(time.Second)), done)
	}
	result, err := run(ctx, *o)
	end()
	if err != nil {
		return err
	}
	return out.Print(cmd.OutOrStdout(), result, func(w io.Writer) error {
		if out.markdown {
			return result.WriteMarkdown(w)
		}
		times := result.Times()
		times.Text("all numbers and charts: %s", filepath.Join(o.Out, reproduce.PageFile))
		return errors.Join(result.Document().WriteText(w), times.WriteText(w))
	})
}

func reproduceSymphonyCommand() *cobra.Command {
	return paperCommand(&cobra.Command{
		Use:   "symphony",
		Short: "Reproduce the figures of the Symphony paper, on linear devices",
		Long: `Symphony reproduces the figures of the Symphony paper (SOSP '23). It serves the paper's
workloads in virtual time, on devices on which a batch of b queries takes alpha b +
beta, with the policy deferred and with the paper's baselines.

Goodput is the highest rate at which at most 1 % of the queries of each service are
late or dropped. It is found by bisection, to 0.2 % of the best that the devices could
do. All is repeated with several seeds; the results are the median and the range.

--data names a folder with symphony_profiles.csv: tables 3 and 4 of the paper with the
columns gpu, model, alpha_ms, beta_ms and slo_ms. The changing load of figure 15 comes
from traces/servegen/m-small in the same folder: a file for each client, as in ServeGen,
without a header, with a row for every ten minutes: second, requests per second,
coefficient of variation, and three more columns.

--out gets index.html, a self-contained page; result.json; and run.json with what
differs from run to run. The same seed gives the same result.`,
		Example: `  overlapd-lab reproduce symphony --data data --out symphony
  overlapd-lab reproduce symphony --data data --out symphony --figures "table 2,9"`,
	}, reproduce.Symphony, reproduce.SymphonyFigures(), reproduce.LinearSeeds, reproduce.LinearQueries, "least queries of a run; more where targets are long")
}

func reproduceShepherdCommand() *cobra.Command {
	return paperCommand(&cobra.Command{
		Use:   "shepherd",
		Short: "Reproduce the figures of the Shepherd paper, on linear devices",
		Long: `Shepherd reproduces the figures of the Shepherd paper (NSDI '23). It serves the paper's
workloads in virtual time, on devices on which a batch of b queries takes alpha b +
beta, with and without preemption and with other policies: the load of real clients by
rate and by target (figures 7 and 9), and bursts of a fast model alongside a steady
stream of a slow one (section 7.2).

--data names a folder with shepherd_profiles.csv: table 4 of the paper with the columns
model, alpha_ms, beta_ms and exit_points. Figures 7 and 9 need traces/servegen/m-small
in the same folder, see "overlapd-lab reproduce symphony --help".

--out gets index.html, a self-contained page; result.json; and run.json with what
differs from run to run. The same seed gives the same result.`,
		Example: `  overlapd-lab reproduce shepherd --data data --out shepherd
  overlapd-lab reproduce shepherd --data data --out shepherd --json`,
	}, reproduce.Shepherd, reproduce.ShepherdFigures(), reproduce.LinearSeeds, reproduce.LinearQueries, "least queries of a run; more where targets are long")
}

func reproduceRAMSISCommand() *cobra.Command {
	return paperCommand(&cobra.Command{
		Use:   "ramsis",
		Short: "Reproduce the figures of the RAMSIS paper, on equal workers",
		Long: `RAMSIS reproduces the figures of the RAMSIS paper (EuroSys '24). Equal workers answer
the queries of one service in virtual time, each query by one of several models, with
our policies and with the paper's baselines Jellyfish+ and ModelSwitching. It reports
accuracy and violations. A batch takes the p95 of the authors' measurements.

--data names a folder that holds ramsis, or that folder: accuracy_percent.csv,
profile_summary_ms.csv and twitter_trace_qps.txt.

--out gets index.html, a self-contained page; result.json; and run.json with what
differs from run to run. The same seed gives the same result.`,
		Example: `  overlapd-lab reproduce ramsis --data data --out ramsis
  overlapd-lab reproduce ramsis --data data --out ramsis --figures 7 --seeds 1000`,
	}, reproduce.RAMSIS, reproduce.RAMSISFigures(), reproduce.LinearSeeds, reproduce.RAMSISQueries, "most queries of a run at a constant load, which ends after 30 s in any case")
}

func reproducePPipeCommand() *cobra.Command {
	return paperCommand(&cobra.Command{
		Use:   "ppipe",
		Short: "Reproduce the figures of the PPipe paper, on clusters of unequal GPUs",
		Long: `PPipe reproduces the figures of the PPipe paper (ATC '25). It serves 18 models in
virtual time on clusters with two classes of GPUs: by pipeline plans and reservations,
with our planner and the daemon's scheduler, and with the paper's baselines NP, DART-r
and reactive. It reports the highest load factor at which 99 % of the queries are in
time, and GPU utilization. Load factor 1 is the throughput of PPipe's plan.

--data names a folder that holds ppipe, or that folder: block-timing-tf32, block times
by model, class and share, and plans-ablation, the authors' plans for one model each.
Figure 6 takes bursts from traces/azure-llm-2023 in the folder that holds ppipe: real
arrivals with a coefficient of variation of 13, scaled as the authors scale theirs.
With abacus-a100 there, two services also share pipelines over two scaled instances of
an A100, and fitting takes two minutes more.

--out gets index.html, a self-contained page; result.json; and run.json with what
differs from run to run. The same seed gives the same result.`,
		Example: `  overlapd-lab reproduce ppipe --data data --out ppipe
  overlapd-lab reproduce ppipe --data data --out ppipe --figures 10 --seeds 5`,
	}, reproduce.PPipe, reproduce.PPipeFigures(), reproduce.PPipeSeeds, reproduce.PPipeQueries, "most queries of a run, which ends after 30 s in any case")
}

// paperCommand is the command for a paper that a folder with few files is enough for.
func paperCommand(cmd *cobra.Command, run func(context.Context, reproduce.Options) (*reproduce.Result, error), figures []string, seeds, queries int, ofQueries string) *cobra.Command {
	o := reproduce.DefaultOptions()
	o.Queries, o.Seeds = queries, seeds
	var out tables
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return reproduceWith(cmd, run, &o, &out) }
	f := cmd.Flags()
	f.StringVar(&o.Data, "data", "", "folder with the profiles of the paper")
	f.StringVarP(&o.Out, "out", "o", "", "folder for results")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the first run")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "runs of each deployment, with different arrivals; the results are medians and ranges")
	f.IntVar(&o.Queries, "queries", o.Queries, ofQueries)
	f.StringSliceVar(&o.Figures, "figures", nil, "only these figures: "+strings.Join(figures, ", "))
	out.Flags(f)
	return cmd
}
