package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
)

func benchEngineCommand() *cobra.Command {
	o := cutcost.Options{}
	var names []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Compare models run operator by operator with the same models run whole",
		Long: `For every model, batch and thread count, one process runs the whole model and
the cut one in turns and compares the medians; two more processes, one for each,
measure resident memory. Whole is one ONNX Runtime session at the highest level
of optimization; cut is what a worker runs.`,
		Example: `  overlapd bench engine
  overlapd bench engine --model bert --batch 1,4 --threads 2 --json
  overlapd bench engine --model model.onnx --cut 16`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := openORT(); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Command = []string{self, "bench", "probe"}
			if o.CacheDir, err = cacheDir("optimized"); err != nil {
				return err
			}
			for _, name := range names {
				path, err := modelPath(name)
				if err != nil {
					return err
				}
				o.Models = append(o.Models, cutcost.Model{Name: name, Path: path})
			}
			if !asJSON {
				o.Progress = func(doing string) { fmt.Fprintln(os.Stderr, doing) }
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			rows, err := cutcost.Run(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), struct {
					Runs   []cutcost.Row `json:"runs"`
					Seed   int64         `json:"seed"`
					Commit string        `json:"commit"`
					Device string        `json:"device"`
				}{rows, o.Seed, buildCommit(), cpuName()})
			}
			return cutcost.Document(rows).WriteText(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&names, "model", []string{"resnet50"}, "models: names of the zoo or ONNX files")
	f.IntSliceVar(&o.Batches, "batch", []int{1, 4}, "batch sizes")
	f.IntSliceVar(&o.Threads, "threads", []int{1, runtime.NumCPU()}, "intra-op thread counts")
	f.IntVar(&o.SeqLen, "seq-len", 64, "sequence length, where a model has one")
	f.IntVar(&o.Target, "cut", 0, "operators wanted, 0 for one at every node")
	f.Int64Var(&o.Seed, "seed", 1, "seed of the inputs")
	f.BoolVar(&o.Spin, "spin", false, "let waiting threads spin")
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "time for each comparison")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// benchProbeCommand is one measurement in a process of its own.
func benchProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "probe",
		Short:  "Take one measurement (started by bench engine)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var spec cutcost.ProbeSpec
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&spec); err != nil {
				return fmt.Errorf("a measurement is described on standard input: %w", err)
			}
			result, err := cutcost.Probe(spec)
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), result)
		},
	}
}
