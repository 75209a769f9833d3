package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
)

func serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Serve loads every service of the configuration into a worker process of its own
and answers inference requests over HTTP (Open Inference Protocol). With
device = "emulated" nothing is loaded or computed: requests take the time that
they would on the device of a profile.

SIGTERM and SIGINT stop accepting and answer what was accepted; a second one
quits at once. SIGHUP reads the configuration file again, as overlapd reload
does, and the log says what became of it.`,
		Example: `  overlapd serve --embedded             two zoo models on the CPU
  overlapd serve --config overlapd.toml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.config()
			if err != nil {
				return err
			}
			if o.dryRun {
				return planGPU(c, cmd.OutOrStdout())
			}
			return serve(c, o.config, os.Stderr)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print how a GPU would be divided and who would have how much of its memory, and change nothing")
	return cmd
}

// serveOptions says where the configuration comes from.
type serveOptions struct {
	path     string
	embedded bool
	listen   string
	grpc     string
	policy   string
	dryRun   bool
	on       string
}

func (o *serveOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.path, "config", "c", "", "configuration file")
	f.BoolVar(&o.embedded, "embedded", false, "run the built-in configuration: resnet50 and bert on the CPU")
	f.StringVar(&o.listen, "listen", "", "address, instead of the configuration's")
	f.StringVar(&o.grpc, "grpc-listen", "", "address of gRPC, instead of the configuration's")
	f.StringVar(&o.policy, "policy", "", "scheduling policy, instead of the configuration's: "+strings.Join(policyNames(), ", "))
	f.StringVar(&o.on, "on", "", `device, where the configuration leaves it open: "cpu", or index or UUID of a GPU`)
	cmd.MarkFlagsMutuallyExclusive("config", "embedded")
}

// config reads the configuration. A daemon that runs does so again.
func (o *serveOptions) config() (config.Config, error) {
	var c config.Config
	switch {
	case o.embedded:
		c = config.Embedded()
	case o.path != "":
		var err error
		if c, err = config.Load(o.path); err != nil {
			return c, err
		}
	default:
		return c, errors.New("which configuration? Give --config FILE, or --embedded to try overlapd out")
	}
	if o.listen != "" {
		c.Listen = o.listen
	}
	if o.grpc != "" {
		c.GRPCListen = o.grpc
	}
	if o.policy != "" {
		c.Policy = o.policy
	}
	if err := runOn(&c, o.on); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// serve runs the daemon until it is told to stop. What is read again makes it
// follow its configuration.
func serve(c config.Config, again func() (config.Config, error), out io.Writer) error {
	defer outliveLog()()
	log := newLogger(c, out)
	ctx, hurry, stop, release := stopSignals()
	defer release()
	hangups, deaf := hangupSignals()
	defer deaf()
	tellSystemd(opening, log)
	r := &reloader{read: again, tell: notify, log: log}
	reloads := admin.NewReloads(ctx, r)
	unadministered, err := administer(&c, reloads, log)
	if err != nil {
		return err
	}
	defer unadministered()
	d, err := newDaemon(c, log, false)
	if err != nil {
		return err
	}
	r.follow(d)
	reported := report(ctx, d, c, log, func() { r.announced.Store(true) })
	heard := onHangup(ctx, hangups, reloads, stop)
	err = d.Run(ctx, hurry)
	reported()
	stop()
	heard()
	reloads.Wait()
	if err == nil && hurry.Err() != nil {
		return errors.New("quit by a second signal; some requests were not answered")
	}
	return err
}

// newDaemon returns a daemon whose workers are processes of this binary.
func newDaemon(c config.Config, log zerolog.Logger, offline bool) (*daemon.Daemon, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if !c.Emulated() {
		if err := warnOfORT(log); err != nil {
			return nil, err
		}
	}
	return daemon.New(c, daemon.Options{
		Worker:  []string{self, "worker"},
		Check:   []string{self, checkStateName},
		Version: version,
		Commit:  buildCommit(),
		Device:  cpuName(),
		Cores:   runtime.NumCPU(),
		Fit:     fitElsewhere(self),
		Offline: offline,
		GPU:     gpu.Options{Probe: tryGPU},
		Log:     log,
	})
}

// planGPU prints what a daemon would do with a GPU.
func planGPU(c config.Config, out io.Writer) error {
	text, err := daemon.PlanGPU(c, daemon.Options{GPU: gpu.Options{Probe: tryGPU}, Log: newLogger(c, os.Stderr)})
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	return err
}

// signalPause is how long after the first signal another one is taken for the
// same: timeout(1) and some shells tell the process and then its group.
const signalPause = 200 * time.Millisecond

// stopSignals returns a context that ends with the first signal to stop, or
// with stop, and one that ends with the second signal.
func stopSignals() (ctx, hurry context.Context, stop, release func()) {
	ctx, first := context.WithCancel(context.Background())
	hurry, second := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	go func() {
		var since time.Time
		for range signals {
			switch {
			case since.IsZero():
				since = time.Now()
				first()
			case time.Since(since) > signalPause:
				second()
			}
		}
	}()
	return ctx, hurry, first, func() {
		signal.Stop(signals)
		close(signals)
		first()
	}
}

// warnOfORT finds ONNX Runtime before any worker has to.
func warnOfORT(log zerolog.Logger) error {
	lib, err := openORT()
	if err != nil {
		return err
	}
	if !lib.Pinned() {
		log.Warn().Str("version", lib.Version()).Str("path", lib.Path()).
			Msg("this is not the version of ONNX Runtime that overlapd is tested with")
	}
	return nil
}

func newLogger(c config.Config, out io.Writer) zerolog.Logger {
	zerolog.TimeFieldFormat = time.RFC3339Nano
	zerolog.DurationFieldUnit = time.Millisecond
	setLogLevel(c.LogLevel)
	if c.LogFormat == "console" {
		out = zerolog.ConsoleWriter{Out: out, TimeFormat: "15:04:05.000", NoColor: !term.IsTerminal(int(os.Stderr.Fd()))}
	}
	return zerolog.New(out).With().Timestamp().Logger()
}

// setLogLevel sets the level of the process, so that it can change while the
// logger is in many hands.
func setLogLevel(name string) {
	level, err := zerolog.ParseLevel(name)
	if err != nil {
		level = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(level)
}
