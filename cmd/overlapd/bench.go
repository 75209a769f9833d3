package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/report"
)

func benchEngineCommand() *cobra.Command {
	o := cutcost.Options{Path: modelPath, Command: self("bench", "probe")}
	var out output
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
			if _, err := ort.Load(); err != nil {
				return err
			}
			var err error
			if o.Spec.CacheDir, err = cacheDir("optimized"); err != nil {
				return err
			}
			if !out.json {
				o.Progress = func(doing string) { fmt.Fprintln(os.Stderr, doing) }
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			rows, err := cutcost.Run(ctx, o)
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), struct {
				Runs   []cutcost.Row `json:"runs"`
				Seed   int64         `json:"seed"`
				Commit string        `json:"commit"`
				Device string        `json:"device"`
			}{rows, o.Spec.Seed, buildCommit(), cpuName()}, cutcost.Table(rows).WriteText)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Models, "model", []string{"resnet50"}, "models: names of the zoo or ONNX files")
	f.IntSliceVar(&o.Batches, "batch", []int{1, 4}, "batch sizes")
	f.IntSliceVar(&o.Threads, "threads", []int{1, runtime.NumCPU()}, "intra-op thread counts")
	f.IntVar(&o.Spec.SeqLen, "seq-len", 64, "sequence length, where a model has one")
	f.IntVar(&o.Spec.Target, "cut", 0, "operators wanted, 0 for one at every node")
	f.Int64Var(&o.Spec.Seed, "seed", 1, "seed of the inputs")
	f.BoolVar(&o.Spec.Spin, "spin", false, "let waiting threads spin")
	f.DurationVar(&o.Spec.Duration, "duration", 10*time.Second, "time for each comparison")
	out.flag(f)
	return cmd
}

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
			return report.WriteJSON(cmd.OutOrStdout(), result)
		},
	}
}

// Of each service, what load there is if nobody says how much: requests a second, over so
// many connections.
const gentleRate, gentleConnections = 2, 4

func benchServeCommand() *cobra.Command {
	o := load.DefaultOptions()
	var out output
	var at target
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Put load on a running daemon and report latency, goodput and errors",
		Long: `An open loop (--rate) sends requests when they are due, whether or not earlier
ones were answered, and counts latency from then; a closed loop (--connections)
sends the next request when the last one was answered. Without either, each service
is asked twice a second; without --service, all services are asked. Ctrl-C ends the run early and reports what was measured.`,
		Example: `  overlapd bench serve
  overlapd bench serve --service resnet50 --rate 10 --duration 30s
  overlapd bench serve --service resnet50,bert --rate 20 --arrivals gamma --cv 3
  overlapd bench serve --service tiny_identity --connections 16
  overlapd bench serve --service bert --connections 1 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if at.client.Dial != nil {
				return errors.New("load is put on a TCP address, and this daemon listens on a socket of Unix")
			}
			if len(o.Services) == 0 {
				var err error
				if o.Services, err = askServices(&at); err != nil {
					return err
				}
			}
			if o.Rate == 0 && o.Connections == 0 {
				o.Rate, o.RatePerService, o.Connections = gentleRate, true, gentleConnections*len(o.Services)
			}
			o.URL, o.Authorization, o.TLS = at.base, at.header, at.client.TLSConfig
			o.Version, o.Commit = version, buildCommit()
			bar := newBar("sending", 1)
			if !out.json {
				o.Progress = func(doing string, done float64) { showPart(bar, doing, done) }
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			result, err := load.Run(ctx, o)
			_ = bar.Exit()
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), result, result.Document().WriteText)
		},
	}
	at.flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.Services, "service", nil, "services to ask, all if not given")
	f.Float64Var(&o.Rate, "rate", 0, "requests per second of an open loop, all services together")
	f.BoolVar(&o.RatePerService, "rate-per-service", false, "the rate is that of each service")
	f.StringVar(&o.Arrivals, "arrivals", o.Arrivals, "of an open loop: poisson, constant or gamma")
	f.Float64Var(&o.CV, "cv", o.CV, "coefficient of variation of gamma arrivals")
	f.IntVar(&o.Connections, "connections", 0, "connections of all services together; without a rate, of a closed loop")
	f.DurationVar(&o.Duration, "duration", o.Duration, "time measured")
	f.DurationVar(&o.Warmup, "warmup", o.Warmup, "time before that, not measured")
	f.DurationVar(&o.Timeout, "give-up", o.Timeout, "when the generator gives up on an answer")
	f.DurationVar(&o.Target, "target", 0, "latency that counts as good, 0 for the service's QoS target")
	f.IntVar(&o.Batch, "batch", o.Batch, "batch dimension of a request")
	f.IntVar(&o.SeqLen, "seq-len", o.SeqLen, "other dimensions that a model leaves open")
	f.Int64Var(&o.MaxID, "max-id", o.MaxID, "made-up integers are below it; a model's vocabulary may end earlier")
	f.IntVar(&o.Inputs, "inputs", o.Inputs, "different requests per service, sent in turn")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of arrivals and inputs")
	f.BoolVar(&o.JSONTensors, "json-tensors", false, "send tensors as JSON instead of binary")
	f.BoolVar(&o.Verify, "verify", false, "check that answers to the same input are equal")
	f.DurationVar(&o.QueryTimeout, "timeout", 0, "timeout parameter of each request, 0 for none")
	f.IntVar(&o.Priority, "priority", 0, "priority parameter of each request, 0 for none")
	out.flag(f)
	return cmd
}
