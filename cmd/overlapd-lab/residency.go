package main

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/lab/residency"
)

// gigabyte is the unit of the flags for memory and the copy rate.
const gigabyte = 1e9

// residencyCommand compares rules for what is in memory. Its flags change the default scenario, so that
// the command without flags is the one of docs/benchmarks/models.md with a longer measurement.
func residencyCommand() *cobra.Command {
	sc := residency.Default()
	grid := residency.Grid{Seeds: 1}
	var out tables
	var picture string
	memory, rate := float64(sc.Memory)/gigabyte, sc.Rate/gigabyte
	cmd := &cobra.Command{
		Use:   "residency",
		Short: "Compare rules for what is in memory where there are more models than fit",
		Long: `Residency serves queries for many models on one device, in virtual time. Only some of the
models fit into the device's memory. Use it to see what the daemon's rule for loading and
evicting models gains over those of caches, on your numbers. The same seed gives the same
result, and every policy gets the same queries.

The models are copies of resnet50, resnet101, resnet152, inception_v3, vgg16, vgg19 and
bert. Their popularity follows Zipf's law. It rises and falls with the time of day, at
different times for each of eight groups. Queries are Poisson. --load is the fraction of
the device's time that all queries would take.

Loading a model takes --start, and its weights are copied at --rate. One model loads at a
time. Of the fraction --short of the models, targets are 0.3 to 0.9 times the load time
after the execution time, so no query can wait for a load. The others have 1.3 to 13
times the load time. Queries of absent models wait if that is in time, under each policy;
otherwise they are rejected. Rejected and dropped queries are violations.

The policies are
  overlapd       the daemon's
  lru            evicts the least recently used model, and loads at each miss
  lfu            evicts the model with the fewest queries per byte of late
  gdsf           greedy dual size frequency
  lfu-admission  lfu, and a model for which no query waits is loaded only if it has more
                 queries than its victims, as in TinyLFU
  modelmesh      lru, but nothing is evicted while the least recently used model was used
                 within five minutes, as in KServe's ModelMesh
  fixed          keeps the models with the most queries per byte, known in advance`,
		Example: `  overlapd-lab residency
  overlapd-lab residency --models 30 --memory 8 --start 2s --load 0.1,0.3 --short 0.5 --seeds 5
  overlapd-lab residency --policies overlapd,lru --start 0 --json
  overlapd-lab residency --models 12 --memory 2 --start 2s --load 0.002 --duration 24h \
      --policies overlapd,lru --short 0.5 --picture day.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Both flags are in the units in which people think of devices.
			sc.Memory, sc.Rate = int64(memory*gigabyte), rate*gigabyte
			if len(grid.Policies) == 0 {
				grid.Policies = residency.Policies()
			}
			if picture != "" {
				sc.Load, sc.Short = grid.Loads[0], grid.Short[0]
				chart, err := residency.Picture(sc, grid.Policies)
				if err != nil {
					return err
				}
				return os.WriteFile(picture, chart.File(), 0o644)
			}
			show, end := cli.Bar()
			results, err := grid.Run(sc, func(done float64) { show("simulating", done) })
			end()
			if err != nil {
				return err
			}
			// The scenario has the first seed and neither load nor targets of any one result.
			all := struct {
				Results  []residency.Result `json:"results"`
				Scenario residency.Scenario `json:"scenario"`
				Seeds    int                `json:"seeds"`
				Commit   string             `json:"commit"`
			}{results, sc, grid.Seeds, cli.Commit()}
			return out.Print(cmd.OutOrStdout(), all, func(w io.Writer) error {
				if out.markdown {
					return residency.WriteMarkdown(w, results)
				}
				return residency.Document(results).WriteText(w)
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&grid.Policies, "policies", nil, "policies, all by default: "+strings.Join(residency.Policies(), ", "))
	f.Float64SliceVar(&grid.Loads, "load", []float64{0.3, 0.6, 0.9}, "loads, as `fractions` of the device's time")
	f.Float64SliceVar(&grid.Short, "short", []float64{0, 0.5, 1}, "`fractions` of models whose queries cannot wait for a load")
	f.IntVar(&sc.Models, "models", sc.Models, "number of models")
	f.Float64Var(&sc.Zipf, "zipf", sc.Zipf, "exponent of the popularity of models")
	f.Float64Var(&memory, "memory", memory, "memory of the device in `GB`; a model takes 0.25 to 0.73")
	f.DurationVar(&sc.Start, "start", sc.Start, "time of a load besides copying the weights")
	f.Float64Var(&rate, "rate", rate, "rate at which weights are copied, in `GB/s`")
	f.DurationVar(&sc.Day, "day", sc.Day, "period of the popularity")
	f.DurationVar(&sc.Duration, "duration", sc.Duration, "virtual time that is measured; an eighth of the day shows all times of day")
	f.DurationVar(&sc.WarmUp, "warm-up", sc.WarmUp, "virtual time before that")
	f.Uint64Var(&sc.Seed, "seed", sc.Seed, "first seed of all random choices")
	f.IntVar(&grid.Seeds, "seeds", grid.Seeds, "number of seeds of which the mean is taken")
	f.StringVar(&picture, "picture", "", "draw when models are in memory, at the first load and fraction of short targets, to this SVG `file`, instead of tables")
	out.Flags(f)
	return cmd
}
