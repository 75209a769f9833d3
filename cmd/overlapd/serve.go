package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/worker"
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

// serveOptions are the flags that choose a configuration and change it.
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

// config reads the configuration, at the start and again for each reload.
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

// serve runs the daemon until a signal stops it. A reload reads the configuration
// again.
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
	reported := reportState(ctx, d, c, log, func() { r.announced.Store(true) })
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

// planGPU prints how a daemon would divide a GPU.
func planGPU(c config.Config, out io.Writer) error {
	text, err := daemon.PlanGPU(c, daemon.Options{GPU: gpu.Options{Probe: tryGPU}, Log: newLogger(c, os.Stderr)})
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	return err
}

// signalPause is the time within which a second signal is taken for the first one:
// timeout(1) and some shells signal the process and then its group.
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

// warnOfORT opens ONNX Runtime, so that its absence is known before any worker
// starts, and warns of an untested version.
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

// setLogLevel sets the level of the process and not of a logger: copies of that
// are in many hands when a reload changes it.
func setLogLevel(name string) {
	level, err := zerolog.ParseLevel(name)
	if err != nil {
		level = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(level)
}

// openTime limits building the models of the zoo and opening the others. Later the
// daemon itself asks systemd for time.
const openTime = 5 * time.Minute

// opening is the first state that systemd gets.
var opening = fmt.Sprintf("STATUS=opening the state and the models\nEXTEND_TIMEOUT_USEC=%d", openTime.Microseconds())

// reportState reports the state of the daemon to systemd and, on a terminal, to
// people. It calls announced once systemd knows that the daemon is ready. The
// caller calls the function it returns, which waits, when the daemon has ended.
func reportState(stopping context.Context, d *daemon.Daemon, c config.Config, log zerolog.Logger, announced func()) func() {
	started := time.Now()
	ended, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Report(stopping, ended, daemon.Manager{
			Tell:     notify,
			Watchdog: watchdog(log),
			Ready: func(without []string) {
				announced()
				sayReady(log, time.Since(started), without)
				if term.IsTerminal(int(os.Stdout.Fd())) || c.LogFormat == "console" {
					fmt.Fprint(os.Stdout, greeting(os.Args[0], d.Addr(), c))
				}
			},
		})
	}()
	return func() {
		end()
		<-done
	}
}

func sayReady(log zerolog.Logger, took time.Duration, without []string) {
	if len(without) == 0 {
		log.Info().Dur("took", took).Msg("all services are ready")
		return
	}
	log.Warn().Dur("took", took).Str("without", strings.Join(without, ", ")).Msg("ready without the services that were given up")
}

// notify sends a state to systemd, if that started the daemon with a socket for it.
func notify(state string) error {
	_, err := sd.SdNotify(false, state)
	return err
}

func tellSystemd(state string, log zerolog.Logger) {
	if err := notify(state); err != nil {
		log.Warn().Err(err).Msg("telling systemd")
	}
}

// watchdog returns the interval within which systemd wants signs of life, 0 for
// none.
func watchdog(log zerolog.Logger) time.Duration {
	within, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn().Err(err).Msg("systemd's watchdog is not fed")
	}
	return within
}

// gpuName matches the names of a GPU that can be nothing else: an index, or a
// UUID or its beginning.
var gpuName = regexp.MustCompile(`(?i)^([0-9]+|(GPU|MIG)-[0-9a-f-]+)$`)

// runOn lets a configuration run on a device, "cpu" or a GPU, which is how an
// instance of the systemd unit is named. What the configuration says itself
// stands. But a copy of one GPU's file that still names that GPU would put two
// daemons on it, so another name is refused. Instances of other names have a
// configuration that names a device.
func runOn(c *config.Config, device string) error {
	switch {
	case device == "cpu" && c.Device == "auto" && c.GPU == "":
		c.Device = device
	case device == "cpu" && (c.Device == "cuda" || c.GPU != ""):
		return fmt.Errorf("the daemon is to run on the processor, and the configuration names a GPU: leave out device and gpu, or run it on that GPU")
	case !gpuName.MatchString(device) || c.Device == "emulated":
		return nil
	case c.Device == "cpu":
		return fmt.Errorf("the daemon is to run on the GPU %s, and the configuration has device = \"cpu\": leave it out", device)
	case c.GPU == "":
		c.Device, c.GPU = "cuda", device
	case !sameGPU(c.GPU, device):
		return fmt.Errorf("the daemon is to run on the GPU %s, and the configuration has gpu = %q: leave it out", device, c.GPU)
	default:
		c.Device = "cuda"
	}
	return nil
}

// sameGPU reports whether two names can be of one GPU. Names of different kinds can:
// every index has a UUID, and a GPU has MIG devices.
func sameGPU(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	kind, _, uuid := strings.Cut(a, "-")
	other, _, both := strings.Cut(b, "-")
	switch {
	case uuid != both, uuid && kind != other:
		return true
	case uuid:
		return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
	}
	return a == b
}

// greeting is for a person who has started the daemon in a terminal: requests to
// paste into another one, where program runs overlapd. Models of half precision
// have no example, since FP16 has no JSON form.
func greeting(program string, addr net.Addr, c config.Config) string {
	if addr.Network() == "unix" {
		return ""
	}
	url := "http://" + addr.String()
	var b strings.Builder
	note := ""
	if c.Emulated() {
		note = ", on an emulated device: nothing is computed"
	}
	fmt.Fprintf(&b, "\noverlapd is ready at %s%s. Try:\n\n", url, note)
	var names []string
	for _, s := range c.Services {
		names = append(names, s.Name)
		switch strings.TrimPrefix(s.Model, config.ZooPrefix) {
		case "bert":
			fmt.Fprintf(&b, `  curl -s %s/v2/models/%s/infer -d '{"inputs":[
    {"name":"input_ids","datatype":"INT64","shape":[1,4],"data":[101,7592,2088,102]},
    {"name":"attention_mask","datatype":"INT64","shape":[1,4],"data":[1,1,1,1]},
    {"name":"token_type_ids","datatype":"INT64","shape":[1,4],"data":[0,0,0,0]}],
    "outputs":[{"name":"pooler_output"}]}' | cut -c -200

`, url, s.Name)
		case "resnet50", "resnet101", "resnet152", "vgg16", "vgg19":
			fmt.Fprintf(&b, `  (printf '{"inputs":[{"name":"input","datatype":"FP32","shape":[1,3,224,224],"data":[0.5'
   yes ,0.5 | head -n 150527 | tr -d '\n'; printf ']}]}') |
    curl -s %s/v2/models/%s/infer --data-binary @- | cut -c -200

`, url, s.Name)
		}
	}
	fmt.Fprintf(&b, "  %s bench serve --url %s --service %s --rate 4 --duration 10s\n\n", program, url, strings.Join(names, ","))
	fmt.Fprintf(&b, "Ctrl-C stops it; what was accepted is answered first.\n\n")
	return b.String()
}

// workerCommand runs the worker of a service. It is in the same binary as the
// daemon, so that both ends of their protocol are of one version.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Hold one service's model and run its spans (started by the daemon)",
		Hidden: true,
		Args:   cobra.NoArgs,
		Long: `A worker is started by the daemon, which hands it a socket and shared memory. It
is of no use by hand: run overlapd serve.`,
		RunE: func(*cobra.Command, []string) error {
			err := worker.Run(segments.LoadONNX)
			if errors.Is(err, worker.ErrLoadFailed) {
				return errReported // the daemon has the error and reports it
			}
			return err
		},
	}
}

// checkStateName is the command that checks the state file before it is opened.
const checkStateName = "check-state"

func checkStateCommand() *cobra.Command {
	return &cobra.Command{
		Use:    checkStateName,
		Short:  "Check the state file (started by whoever opens it)",
		Hidden: true,
		Args:   cobra.NoArgs,
		Long: `The state file is checked in a process of its own before it is opened, so that no
damage to it ends the daemon. It is handed over open: this command is of no use by
hand.`,
		Run: func(*cobra.Command, []string) { statefile.RunCheck() },
	}
}
