package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/ort"
)

func benchEngineCommand() *cobra.Command {
	o := cutOptions{Path: cli.ModelPath, Command: cli.Self("bench", "probe")}
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Measure what running a model operator by operator costs",
		Long: `Engine compares each model run operator by operator, as a worker runs it, with the
same model run as one fully optimized ONNX Runtime session. Use it to see what
cutting a model costs before you serve it.

For every model, batch size and thread count, one process runs both in turns and
compares the medians. Two more processes, one for each way, measure resident memory.`,
		Example: `  overlapd-lab bench engine
  overlapd-lab bench engine --model bert --batch 1,4 --threads 2 --json
  overlapd-lab bench engine --model model.onnx --cut 16`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := ort.Load(); err != nil {
				return err
			}
			var err error
			if o.Spec.CacheDir, err = cli.CacheDir("optimized"); err != nil {
				return err
			}
			if !out.JSON {
				o.Progress = func(doing string) { fmt.Fprintln(os.Stderr, doing) }
			}
			ctx, stop := cli.Interruptible(cmd)
			defer stop()
			rows, err := o.run(ctx)
			if err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), struct {
				Runs   []cutRow `json:"runs"`
				Seed   int64    `json:"seed"`
				Commit string   `json:"commit"`
				Device string   `json:"device"`
			}{rows, o.Spec.Seed, cli.Commit(), cli.CPU()}, cutTable(rows).WriteText)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Models, "model", []string{"resnet50"}, "zoo models or ONNX files to measure")
	f.IntSliceVar(&o.Batches, "batch", []int{1, 4}, "batch sizes")
	f.IntSliceVar(&o.Threads, "threads", []int{1, runtime.NumCPU()}, "intra-op thread counts")
	f.IntVar(&o.Spec.SeqLen, "seq-len", 64, "sequence length, for models that have one")
	f.IntVar(&o.Spec.Target, "cut", 0, "number of operators to cut into, 0 to cut at every node")
	f.Int64Var(&o.Spec.Seed, "seed", 1, "seed of the inputs")
	f.BoolVar(&o.Spec.Spin, "spin", false, "let idle ONNX Runtime threads spin")
	f.DurationVar(&o.Spec.Duration, "duration", 10*time.Second, "time limit for each comparison")
	out.Flags(f)
	return cmd
}
