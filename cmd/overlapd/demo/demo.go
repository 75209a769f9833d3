// Package demo has the command that shows what overlapping gains, first in virtual time and then on a
// daemon. It is the one bridge from the program to the lab, whose simulator it compares policies with.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/lab/synthetic"
)

// Command returns the command.
func Command() *cobra.Command {
	o := demo{seed: 1}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See in a second what overlapping gains, on an emulated GPU",
		Long: `Demo compares four scheduling policies on an emulated GPU and shows what overlapping
gains. Start here: it needs no GPU, no ONNX Runtime and no data. Three services run in
virtual time. Demo shows what runs when, and the highest load of each policy with at
most 1 % of the queries late or rejected. All policies use dynamic batching.

Then it runs a daemon on the same emulated device under load, with its dashboard,
until Ctrl-C. With --headless or --json it ends after the comparison.`,
		Example: `  overlapd demo
  overlapd demo --headless --duration 10s --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.headless, "headless", false, "only compare; start no daemon")
	f.DurationVar(&o.duration, "duration", 0, "how long the load lasts: in virtual time with --headless (default 3s), else on the daemon (default until Ctrl-C)")
	f.StringVar(&o.listen, "listen", "", "address of the daemon (default 127.0.0.1:8000, or another port if that is taken)")
	f.Uint64Var(&o.seed, "seed", o.seed, "seed of the virtual-time comparison")
	o.Flags(f)
	return cmd
}

// demo has the flags.
type demo struct {
	cli.Output
	headless bool
	duration time.Duration
	listen   string
	seed     uint64
}

// run compares, and shows the result as soon as there is one: the picture, the numbers, the daemon.
func (o *demo) run(cmd *cobra.Command) error {
	if o.duration < 0 || o.duration > longestTime && o.headless {
		return fmt.Errorf("--duration is %v; give 0 to %v", o.duration, longestTime)
	}
	// With a daemon --duration is about that, in real time.
	virtual := virtualTime
	if o.headless || o.JSON {
		virtual = cmp.Or(o.duration, virtual)
	}
	c, err := newComparison(o.seed, virtual)
	if err == nil {
		err = c.each((*policy).record)
	}
	out := newPainter(cmd.OutOrStdout())
	if err == nil && !o.JSON {
		// Before the rest, which takes most of the second.
		err = c.draw(out)
	}
	if err == nil {
		err = c.each((*policy).findHighest)
	}
	if err != nil {
		return err
	}
	c.judge()
	if err := o.Print(out.to, c, func(io.Writer) error { return c.write(out) }); err != nil || o.headless || o.JSON {
		return err
	}
	// In real time the host may be late, so the load leaves some room: the demo is no test of the machine.
	return o.serve(out.to, 0.75*c.QPS)
}

// serve runs a daemon on the device under load until a signal stops it, or the time for
// it is over.
func (o *demo) serve(out io.Writer, qps float64) (err error) {
	dir, err := os.MkdirTemp("", "overlapd-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := o.config(dir)
	if err != nil {
		return err
	}
	// The daemon stops as serve does: a second Ctrl-C does not wait for queries.
	ctx, hurry, stop, release := serving.StopSignals()
	defer release()
	log := serving.NewLogger(c, os.Stderr)
	d, err := o.open(c, log)
	if err != nil {
		return err
	}
	var loading sync.WaitGroup
	loading.Go(func() {
		defer stop()
		lerr := o.load(ctx, out, d, qps)
		// When the daemon stops, load that fails is no news.
		if ctx.Err() == nil && lerr != nil {
			log.Error().Err(lerr).Msg("putting load on the daemon")
		}
	})
	err = d.Run(ctx, hurry)
	stop()
	loading.Wait()
	return err
}

// config is that of a daemon that has all its files in a folder.
func (o *demo) config(dir string) (config.Config, error) {
	c := config.Default()
	// What a demo prints is for the eye, so the log has errors only, and nothing is left behind.
	c.Device, c.StateDir, c.GRPCListen, c.LogLevel = "emulated", dir, "", "error"
	c.Admin.Socket = ""
	c.Listen = cmp.Or(o.listen, c.Listen)
	c.DeviceProfile, c.Predictor.File = filepath.Join(dir, "gpu.device.json"), filepath.Join(dir, "gpu.predictor.json")
	for _, s := range services {
		of := config.DefaultService()
		of.Name, of.Model, of.Target, of.MaxBatch = s.model, config.EmulatedPrefix+s.model, s.target, maxBatch
		c.Services = append(c.Services, of)
	}
	return c, errors.Join(synthetic.Device().WriteFile(c.DeviceProfile), synthetic.Predictor().WriteFile(c.Predictor.File), c.Validate())
}

// open opens the daemon, on any port if nobody has asked for one and the usual one is
// taken.
func (o *demo) open(c config.Config, log zerolog.Logger) (*daemon.Daemon, error) {
	d, err := serving.NewDaemon(c, serving.DaemonOptions(log))
	if errors.Is(err, unix.EADDRINUSE) && o.listen == "" {
		c.Listen = "127.0.0.1:0"
		d, err = serving.NewDaemon(c, serving.DaemonOptions(log))
	}
	return d, err
}

// connections is how many connections each service gets from the load of each
// size. The daemon gives one address half of its connections, and a browser that watches
// the demo has the same address.
const connections = 16

// load puts queries of all sizes on the daemon, and says where to look once it answers.
func (o *demo) load(ctx context.Context, out io.Writer, d *daemon.Daemon, qps float64) error {
	for !d.Ready() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	end := "until Ctrl-C"
	if o.duration > 0 {
		end = fmt.Sprintf("for %v", o.duration)
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, o.duration)
		defer done()
	}
	// The address is known only now, as the port may be any.
	url := "http://" + d.Addr().String()
	fmt.Fprintf(out, "\nlive, %s, emulated, under %.0f queries/s: %s/\n", end, qps, url)
	fmt.Fprintf(out, "in another terminal: %s top --url %s\n", os.Args[0], url)
	// A run has one batch size, so there is one for each, at the same time.
	faults := make([]error, len(sizes))
	var each sync.WaitGroup
	for i, size := range sizes {
		run := load.DefaultOptions()
		run.URL, run.Rate, run.Batch, run.Seed, run.Warmup = url, qps/float64(len(sizes)), size, uint64(i), 0
		run.Connections = connections * len(services)
		// A run after another, since each lists its arrivals beforehand.
		run.Duration = time.Minute
		for _, s := range services {
			run.Services = append(run.Services, s.model)
			if s.seqLens != nil {
				run.SeqLen = s.seqLens[i%len(s.seqLens)]
			}
		}
		each.Go(func() {
			for faults[i] == nil && ctx.Err() == nil {
				_, faults[i] = load.Run(ctx, run)
			}
		})
	}
	each.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(faults...)
}
