package watching

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/internal/cli"
)

// Of each service, what load there is if nobody says how much: requests a second, over so
// many connections. A model on a few cores sustains that, so a first try shows no overload.
const gentleRate, gentleConnections = 2, 4

// benchServeCommand makes the load in this process, with a clock of its own. On the machine of the daemon
// it takes cores from it, and the report says how much the load was late.
func benchServeCommand() *cobra.Command {
	o := load.DefaultOptions()
	var out cli.Output
	var at target
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Put load on a running daemon and report latency, goodput and errors",
		Long: `Serve sends inference requests to a running daemon and reports the latency, goodput
and errors of each service. Use it to try a configuration, or to find the load that
a machine sustains.

With --rate the load is an open loop: requests are sent when they are due, and
latency counts from then, even if earlier answers are missing. With --connections
alone it is a closed loop: each connection sends its next request after the answer.
With neither, each service gets 2 requests/s. Ctrl-C ends the run early and reports
what was measured so far.`,
		Example: `  overlapd bench serve
  overlapd bench serve --service resnet50 --rate 10 --duration 30s
  overlapd bench serve --service resnet50,bert --rate 20 --arrivals gamma --cv 3
  overlapd bench serve --service tiny_identity --connections 16
  overlapd bench serve --service bert --connections 1 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Load has connections of its own, which know TCP only.
			if at.client.Dial != nil {
				return errors.New("bench serve needs a TCP address, and this daemon listens on a Unix socket: set listen to host:port, or give --url")
			}
			if len(o.Services) == 0 {
				var err error
				if o.Services, err = askServices(&at); err != nil {
					return err
				}
			}
			// Without a rate or connections the load is a gentle open loop.
			if o.Rate == 0 && o.Connections == 0 {
				o.Rate, o.RatePerService, o.Connections = gentleRate, true, gentleConnections*len(o.Services)
			}
			o.URL, o.Authorization, o.TLS = at.base, at.header, at.client.TLSConfig
			o.Version, o.Commit = cli.Version, cli.Commit()
			show, end := cli.Bar()
			// With --json a program reads the output, and no one watches a bar.
			if !out.JSON {
				o.Progress = func(doing string, done float64) { show(doing, done) }
			}
			ctx, stop := cli.Interruptible(cmd)
			defer stop()
			// Ctrl-C ends the run early, and what was measured until then is reported.
			result, err := load.Run(ctx, o)
			end()
			if err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), result, result.Document().WriteText)
		},
	}
	at.flags(cmd)
	// Which services are sent how much.
	f := cmd.Flags()
	f.StringSliceVar(&o.Services, "service", nil, "services to query, all by default")
	f.Float64Var(&o.Rate, "rate", 0, "requests per second, all services together; makes an open loop")
	f.BoolVar(&o.RatePerService, "rate-per-service", false, "apply --rate to each service instead of all together")
	f.StringVar(&o.Arrivals, "arrivals", o.Arrivals, "arrival process of an open loop: poisson, constant or gamma")
	f.Float64Var(&o.CV, "cv", o.CV, "coefficient of variation of gamma arrivals")
	f.IntVar(&o.Connections, "connections", 0, "connections, all services together; makes a closed loop if there is no --rate")
	// How long, and what counts as an answer in time. --give-up is this side's, --timeout the daemon's.
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long to measure")
	f.DurationVar(&o.Warmup, "warmup", o.Warmup, "how long to send load before measuring")
	f.DurationVar(&o.Timeout, "give-up", o.Timeout, "how long to wait for an answer")
	f.DurationVar(&o.Target, "target", 0, "latency that counts as good, 0 for the service's latency target")
	// What is asked. Values are random, for the cost of a model depends on shapes.
	f.IntVar(&o.Batch, "batch", o.Batch, "batch size of each request")
	f.IntVar(&o.SeqLen, "seq-len", o.SeqLen, "value for the other dimensions that a model leaves open")
	f.Int64Var(&o.MaxID, "max-id", o.MaxID, "upper limit of generated integers; lower it for a model with a small vocabulary")
	f.IntVar(&o.Inputs, "inputs", o.Inputs, "different requests per service, sent in turn")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of arrivals and inputs")
	f.BoolVar(&o.JSONTensors, "json-tensors", false, "send tensors as JSON instead of binary")
	f.BoolVar(&o.Verify, "verify", false, "check that the same input always gets the same answer")
	f.DurationVar(&o.QueryTimeout, "timeout", 0, "timeout parameter of each request, 0 for none")
	f.IntVar(&o.Priority, "priority", 0, "priority parameter of each request, 0 for none")
	out.Flags(f)
	return cmd
}
