package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	liblog "log"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"google.golang.org/grpc/grpclog"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/config/triton"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/textfile"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/worker"
)

func serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Serve runs the daemon: it loads each service of the configuration into its own worker
process and answers inference requests over HTTP and gRPC (Open Inference Protocol).
With device = "emulated" nothing is computed: requests take the time that they would
take on the device of the profile.

SIGTERM and SIGINT stop accepting queries and answer those accepted; a second one
quits immediately. SIGHUP reloads the configuration file, as overlapd reload does, and
the log reports the result.

Sockets that a service manager passes (LISTEN_FDS) under the names http, grpc and
admin are used instead of opening those addresses. Connections then wait while the
daemon restarts.`,
		Example: `  overlapd serve --embedded                        two zoo models on the CPU
  overlapd serve --config /etc/overlapd/vision.toml
  overlapd serve --model-repository /srv/models    a Triton model repository`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.config()
			if err != nil {
				return err
			}
			if o.dryRun {
				plan, err := daemon.PlanGPU(c, daemon.Options{GPU: gpu.Options{Probe: tryGPU}, Log: newLogger(c, os.Stderr)})
				fmt.Fprint(cmd.OutOrStdout(), plan)
				return err
			}
			followed := ""
			if o.follow {
				followed = o.path
			}
			return serve(c, o.config, followed, os.Stderr)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.path, "config", "c", "", "configuration file (default "+localConfig+" in this folder, if there is one)")
	f.BoolVar(&o.embedded, "embedded", false, "serve the built-in configuration: resnet50 and bert on the CPU")
	f.StringVar(&o.repository, "model-repository", "", "serve the ONNX models of a Triton model repository, as overlapd import reads it")
	targetFlag(cmd, &o.target)
	f.StringVar(&o.listen, "listen", "", "HTTP address, instead of the configuration's")
	f.StringVar(&o.grpc, "grpc-listen", "", "gRPC address, instead of the configuration's")
	f.StringVar(&o.policy, "policy", "", "scheduling policy, instead of the configuration's: overlap, abacus, edf, fcfs, sjf or static")
	f.StringVar(&o.on, "on", "", `device, if the configuration names none: "cpu", or index or UUID of a GPU`)
	f.BoolVar(&o.follow, "follow", false, "reload when the file of --config changes, as on SIGHUP")
	cmd.MarkFlagsMutuallyExclusive("config", "embedded", "model-repository")
	cmd.MarkFlagsMutuallyExclusive("follow", "embedded", "model-repository")
	takeLocal(cmd, &o.path, "embedded", "model-repository")
	f.BoolVar(&o.dryRun, "dry-run", false, "print how GPUs would be partitioned and their memory divided, and change nothing")
	return cmd
}

// localConfig is the configuration of commands that are told of none, in their working folder.
const localConfig = "overlapd.toml"

// takeLocal has a command take localConfig without --config, unless one of the flags is given
// that say what to use instead.
func takeLocal(cmd *cobra.Command, path *string, instead ...string) {
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		if *path == "" && !slices.ContainsFunc(instead, cmd.Flags().Changed) {
			*path = local(cmd)
		}
	}
}

// local returns localConfig, or nothing where there is no such file. It says which file is
// taken, since nobody has named it.
func local(cmd *cobra.Command) string {
	if info, err := os.Stat(localConfig); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "overlapd: using %s in this folder\n", localConfig)
	return localConfig
}

// serveOptions are the flags that choose a configuration and change it.
type serveOptions struct {
	path       string
	follow     bool
	embedded   bool
	repository string
	target     time.Duration // of models of the repository without one
	listen     string
	grpc       string
	policy     string
	dryRun     bool
	on         string
}

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
	case o.repository != "":
		var notes []string
		var err error
		c, notes, err = readRepository(o.repository, o.target)
		for _, note := range notes {
			log := newLogger(c, os.Stderr)
			log.Warn().Msg(note)
		}
		if err != nil {
			return c, err
		}
	default:
		return c, errors.New("no configuration: there is no " + localConfig + " in this folder; give --config FILE, or --embedded to try overlapd")
	}
	c.Listen, c.GRPCListen, c.Policy = cmp.Or(o.listen, c.Listen), cmp.Or(o.grpc, c.GRPCListen), cmp.Or(o.policy, c.Policy)
	if err := runOn(&c, o.on); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// readRepository reads a repository of Triton, within the time that one of its models may
// take to load.
func readRepository(dir string, target time.Duration) (config.Config, []string, error) {
	type repository struct {
		config config.Config
		notes  []string
	}
	ctx, cancel := context.WithTimeout(context.Background(), config.Default().Worker.LoadTimeout)
	defer cancel()
	r, err := textfile.Within(ctx, dir, func() (r repository, err error) {
		r.config, r.notes, err = triton.Read(dir, target)
		return r, err
	})
	return r.config, r.notes, err
}

// serve runs the daemon until a signal stops it. A reload reads again, also when a file has
// changed that is to be followed, if one is named.
func serve(c config.Config, again func() (config.Config, error), followed string, out io.Writer) error {
	defer outliveLog()()
	log := newLogger(c, out)
	defer adoptLines(log)()
	ctx, hurry, stop, release := stopSignals()
	defer release()
	hangups := make(chan os.Signal, 1) // the next one, also while the daemon is opened
	signal.Notify(hangups, unix.SIGHUP)
	defer signal.Stop(hangups)
	const opening = 5 * time.Minute // later the daemon itself asks systemd for time
	if err := notify(fmt.Sprintf("STATUS=opening the state and the models\nEXTEND_TIMEOUT_USEC=%d", opening.Microseconds())); err != nil {
		log.Warn().Err(err).Msg("notifying systemd failed")
	}
	given, err := access.Inherit(activation.Files(true), &c)
	if err != nil {
		return err
	}
	given.Each(func(name string, ln net.Listener) {
		log.Info().Str("inherited", name).Stringer("address", ln.Addr()).Msg("using a socket passed by the service manager")
	})
	r := &reloader{read: again, tell: notify, log: log}
	reloads := admin.NewReloads(ctx, r)
	unadministered, err := administer(&c, given.Admin, reloads, log)
	if err != nil {
		return err
	}
	defer unadministered()
	o := daemonOptions(log)
	o.Listener, o.GRPCListener = given.HTTP, given.GRPC
	d, err := newDaemon(c, o)
	if err != nil {
		return err
	}
	r.follow(d)
	ended, end := context.WithCancel(context.Background())
	var reporting, listening sync.WaitGroup
	reporting.Go(func() { reportState(ctx, ended, d, c, r) })
	listening.Go(func() { onHangup(ctx, hangups, reloads, stop) })
	if followed != "" {
		read, _ := os.Stat(followed) // it was there a moment ago
		listening.Go(func() { followFile(ctx, followed, read, followPeriod, hangups) })
	}
	err = d.Run(ctx, hurry)
	end()
	reporting.Wait()
	stop()
	listening.Wait()
	reloads.Wait()
	if err == nil && hurry.Err() != nil {
		return errors.New("quit on a second signal; some requests were not answered")
	}
	return err
}

// newDaemon returns a daemon whose workers are processes of this binary.
func newDaemon(c config.Config, o daemon.Options) (*daemon.Daemon, error) {
	if err := daemon.CheckModels(&c); err != nil {
		return nil, err
	}
	if !c.Emulated() {
		lib, err := ort.Load() // so that its absence is known before any worker starts
		if err != nil {
			return nil, err
		}
		o.Runtime = lib.Version()
		if !lib.Pinned() {
			o.Log.Warn().Str("version", lib.Version()).Str("path", lib.Path()).
				Msg("ONNX Runtime is not the version that overlapd is tested with")
		}
	}
	return daemon.New(c, o)
}

func daemonOptions(log zerolog.Logger) daemon.Options {
	return daemon.Options{
		Worker:  cli.Self("worker"),
		Check:   cli.Self(checkStateName),
		Version: cli.Version,
		Commit:  cli.Commit(),
		Device:  cli.CPU(),
		Cores:   runtime.NumCPU(),

		Processors: runtime.GOMAXPROCS(0),

		Fit: fitElsewhere,
		GPU: gpu.Options{Probe: tryGPU},
		Log: log,
	}
}

// offlineOptions returns the options of a daemon that is asked what it would be on this host,
// and does not serve. Without ONNX Runtime its version is unknown.
func offlineOptions(c *config.Config) daemon.Options {
	o := daemonOptions(zerolog.Nop())
	if !c.Emulated() {
		if lib, err := ort.Load(); err == nil {
			o.Runtime = lib.Version()
		}
	}
	return o
}

// stopSignals returns contexts that end with the first and the second signal to stop.
func stopSignals() (ctx, hurry context.Context, stop, release func()) {
	ctx, first := context.WithCancel(context.Background())
	hurry, second := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	go func() {
		const pause = 200 * time.Millisecond // timeout(1) and some shells signal the process and then its group
		var since time.Time
		for range signals {
			switch {
			case since.IsZero():
				since = time.Now()
				first()
			case time.Since(since) > pause:
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

func newLogger(c config.Config, out io.Writer) zerolog.Logger {
	zerolog.TimeFieldFormat = time.RFC3339Nano
	zerolog.DurationFieldFormat = zerolog.DurationFormatString // with a unit, as 1.2s
	level, err := zerolog.ParseLevel(c.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(level) // that of the logger is in many hands when a reload changes it
	if c.LogFormat == "console" {
		out = zerolog.ConsoleWriter{Out: out, TimeFormat: "15:04:05.000", NoColor: !term.IsTerminal(int(os.Stderr.Fd()))}
	}
	return zerolog.New(out).With().Timestamp().Logger()
}

// adoptLines makes lines of the log, at a limited rate, of what libraries write to standard
// error in forms of their own: net/http by package log, and gRPC. It may be called once
// gRPC is not in use.
func adoptLines(log zerolog.Logger) (release func()) {
	r, w := io.Pipe()
	read := make(chan struct{})
	go func() {
		defer close(read)
		child.Lines(r, func(line string) { log.Warn().Str("line", line).Msg("library output") })
	}()
	out, flags := liblog.Writer(), liblog.Flags()
	liblog.SetOutput(w)
	liblog.SetFlags(0) // the time is a field already
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, w))
	return func() {
		liblog.SetOutput(out)
		liblog.SetFlags(flags)
		_ = w.Close() // what gRPC still writes is lost
		<-read
	}
}

// reportState reports to systemd and, on a terminal, to people, until the daemon has ended.
func reportState(stopping, ended context.Context, d *daemon.Daemon, c config.Config, r *reloader) {
	started := time.Now()
	within, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		r.log.Warn().Err(err).Msg("systemd watchdog not notified")
	}
	d.Report(stopping, ended, daemon.Manager{Tell: notify, Watchdog: within, Ready: func(without []string) {
		r.announced.Store(true)
		if took := time.Since(started).Round(time.Millisecond); len(without) == 0 {
			r.log.Info().Dur("took", took).Msg("all services are ready")
		} else {
			r.log.Warn().Dur("took", took).Str("without", strings.Join(without, ", ")).Msg("ready without the services that failed permanently")
		}
		if term.IsTerminal(int(os.Stdout.Fd())) || c.LogFormat == "console" {
			fmt.Fprint(os.Stdout, greeting(os.Args[0], d.Addr(), c))
		}
	}})
}

// notify sends a state to systemd, if that started the daemon with a socket for it.
func notify(state string) error {
	_, err := sd.SdNotify(false, state)
	return err
}

// gpuName matches what can only be a GPU: an index, or a UUID or its beginning.
var gpuName = regexp.MustCompile(`(?i)^([0-9]+|(GPU|MIG)-[0-9a-f-]+)$`)

// runOn lets a configuration run on a device, "cpu" or a GPU, which is how an instance of
// the systemd unit is named. Other names mean nothing. What the configuration says itself
// stands; but a copy of one GPU's file would put two daemons on it, and is refused.
func runOn(c *config.Config, device string) error {
	switch {
	case len(c.Devices) > 0 && (device == "cpu" || gpuName.MatchString(device)):
		return fmt.Errorf("--on %s does not go with the configuration's own devices: leave out the [[device]] tables, or --on", device)
	case device == "cpu" && c.Device == "auto" && c.GPU == "":
		c.Device = device
	case device == "cpu" && (c.Device == "cuda" || c.GPU != ""):
		return fmt.Errorf("--on cpu, but the configuration names a GPU: leave out device and gpu, or run on that GPU")
	case !gpuName.MatchString(device) || c.Device == "emulated":
		return nil
	case c.Device == "cpu":
		return fmt.Errorf("--on %s, but the configuration has device = \"cpu\": leave it out", device)
	case c.GPU == "":
		c.Device, c.GPU = "cuda", device
	case !sameGPU(c.GPU, device):
		return fmt.Errorf("--on %s, but the configuration has gpu = %q: leave it out", device, c.GPU)
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

// greeting is for a person at a terminal: requests to paste into another one, where program
// runs overlapd. Models of half precision have none, since FP16 has no JSON form.
func greeting(program string, addr net.Addr, c config.Config) string {
	if addr.Network() == "unix" {
		return ""
	}
	url, curl, authority := "http://"+addr.String(), "curl -s", ""
	if c.TLS.Cert != "" { // of which it is not known which authority signed it
		url, curl, authority = "https://"+addr.String(), "curl -s --cacert CA.pem", " --ca CA.pem"
	}
	if c.Access.TokenFile != "" {
		curl += ` -H "Authorization: Bearer $TOKEN"`
		authority += " --token-file " + c.Access.TokenFile
	}
	var b strings.Builder
	note := ""
	if c.Emulated() {
		note = ", on an emulated device: nothing is computed"
	}
	fmt.Fprintf(&b, "\noverlapd is ready at %s%s. Try:\n\n", url, note)
	var names []string
	for _, s := range c.Services {
		names = append(names, s.Name)
		switch strings.TrimPrefix(s.Models()[0], config.ZooPrefix) {
		case "bert":
			fmt.Fprintf(&b, `  %s %s/v2/models/%s/infer -d '{"inputs":[
    {"name":"input_ids","datatype":"INT64","shape":[1,4],"data":[101,7592,2088,102]},
    {"name":"attention_mask","datatype":"INT64","shape":[1,4],"data":[1,1,1,1]},
    {"name":"token_type_ids","datatype":"INT64","shape":[1,4],"data":[0,0,0,0]}],
    "outputs":[{"name":"pooler_output"}]}' | cut -c -200

`, curl, url, s.Name)
		case "resnet50", "resnet101", "resnet152", "vgg16", "vgg19":
			fmt.Fprintf(&b, `  (printf '{"inputs":[{"name":"input","datatype":"FP32","shape":[1,3,224,224],"data":[0.5'
   yes ,0.5 | head -n 150527 | tr -d '\n'; printf ']}]}') |
    %s %s/v2/models/%s/infer --data-binary @- | cut -c -200

`, curl, url, s.Name)
		}
	}
	fmt.Fprintf(&b, "  %s bench serve --url %s --service %s --rate 4 --duration 10s%s\n\n", program, url, strings.Join(names, ","), authority)
	fmt.Fprintf(&b, "Ctrl-C stops the daemon after it has answered the accepted requests.\n\n")
	return b.String()
}

// workerCommand is in the daemon's binary, so that both ends have one protocol.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Hold one service's model and run its operators (started by the daemon)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			err := worker.Run(segments.LoadONNX)
			if errors.Is(err, worker.ErrLoadFailed) {
				return cli.ErrReported // the daemon has the error and reports it
			}
			return err
		},
	}
}

// checkStateName is the command that checks the state file before it is opened.
const checkStateName = "check-state"

// checkStateCommand checks in a process of its own, so that no damage to the state file
// ends the daemon.
func checkStateCommand() *cobra.Command {
	return &cobra.Command{
		Use:    checkStateName,
		Short:  "Check the state file (started by the process that opens it)",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run:    func(*cobra.Command, []string) { statefile.RunCheck() },
	}
}

// running is the part of [daemon.Daemon] that a reloader uses. Tests have another.
type running interface {
	Reload(ctx context.Context, c config.Config, progress func(config.Step)) (*config.Reloaded, error)
	Restart(service string) error
	Leave(leaves bool)
	Open() (open map[string]int64, ended uint64)
	Config() config.Config
}

// reloader is the [admin.Host] of a daemon: it makes it follow its configuration
// file, and logs each change. It exists before the daemon, which may take minutes to
// open: until then daemon is nil, and every request is answered by errOpening.
type reloader struct {
	read func() (config.Config, error)
	tell func(state string) error
	log  zerolog.Logger

	// announced is set once systemd knows that the daemon is ready. A reload
	// before that is not reported to it.
	announced atomic.Bool

	daemon atomic.Pointer[running]
}

var errOpening = &admin.Error{Kind: admin.KindBusy, Message: "the daemon is still opening its state and models; try again in a moment"}

func (r *reloader) follow(d running) { r.daemon.Store(&d) }

func (r *reloader) opened() (running, error) {
	if d := r.daemon.Load(); d != nil {
		return *d, nil
	}
	return nil, errOpening
}

func (r *reloader) Reload(ctx context.Context, progress func(config.Step)) (*config.Reloaded, error) {
	d, err := r.opened()
	if err != nil {
		return nil, err
	}
	r.log.Info().Msg("reloading the configuration")
	if r.announced.Load() {
		ended := daemon.Manager{Tell: r.tell}.Reloading()
		defer func() {
			if err := ended(); err != nil {
				r.log.Warn().Err(err).Msg("notifying the service manager of the reload failed")
			}
		}()
	}
	c, err := textfile.Within(ctx, "the configuration", r.read)
	if err != nil {
		r.sayRefused(err)
		return nil, err
	}
	done, err := d.Reload(ctx, c, progress)
	if done != nil {
		r.say(done)
	}
	if err != nil {
		r.sayRefused(err)
		return nil, kindOf(err)
	}
	return done, nil
}

func (r *reloader) Leave(leaves bool) error {
	d, err := r.opened()
	if err != nil {
		return err
	}
	d.Leave(leaves)
	if leaves {
		r.log.Info().Msg("draining: reports not ready, answers queries until stopped")
	} else {
		r.log.Info().Msg("draining cancelled")
	}
	return nil
}

func (r *reloader) Open() (open map[string]int64, ended uint64, err error) {
	d, err := r.opened()
	if err == nil {
		open, ended = d.Open()
	}
	return open, ended, err
}

// kindOf translates an error of the daemon for clients of the admin socket.
func kindOf(err error) error {
	switch {
	case errors.Is(err, daemon.ErrStopping):
		return admin.ErrStopping
	case errors.Is(err, daemon.ErrReloading):
		return admin.ErrBusy
	case errors.Is(err, daemon.ErrNoService):
		return &admin.Error{Kind: admin.KindNotFound, Message: err.Error()}
	case errors.Is(err, daemon.ErrNotGivenUp):
		return &admin.Error{Kind: admin.KindState, Message: err.Error()}
	}
	return err
}

func (r *reloader) sayRefused(err error) {
	if faults, ok := errors.AsType[config.Faults](err); ok {
		r.log.Error().Str("error", strings.ReplaceAll(faults.Error(), "\n", "; ")).Msg("configuration invalid; nothing was changed")
		return
	}
	r.log.Error().Err(err).Msg("reading the configuration failed")
}

// say logs each change and, at the end, the time that the reload took.
func (r *reloader) say(done *config.Reloaded) {
	for _, c := range changeList(done) {
		switch {
		case c.fault != "":
			r.log.Error().Str("service", c.name).Str("error", c.fault).Msg("the service could not be " + c.verb + "; " + c.instead)
		case c.setting:
			r.log.Info().Str("key", c.name).Msg("the setting is " + c.verb)
		case c.later:
			r.log.Warn().Str("key", c.name).Msg("setting differs in the file; it takes effect after a restart")
		default:
			r.log.Info().Str("service", c.name).Msg("the service is " + c.verb)
		}
	}
	end := r.log.Info()
	if len(done.Failed) > 0 {
		end = r.log.Error().Int("failed", len(done.Failed))
	}
	if done.None() {
		end = end.Bool("unchanged", true)
	}
	end.Dur("took", done.Took.Round(time.Millisecond)).Msg("configuration reloaded")
}

func (r *reloader) Restart(service string) error {
	d, err := r.opened()
	if err != nil {
		return err
	}
	return kindOf(d.Restart(service))
}

func (r *reloader) Config() ([]byte, error) {
	d, err := r.opened()
	if err != nil {
		return nil, err
	}
	return d.Config().TOML(), nil
}

// onHangup begins a reload with each SIGHUP, one after the other, until
// stopping ends. A terminal that is gone sends SIGHUP as well. It stops the
// daemon, since nobody is left to do that.
func onHangup(stopping context.Context, heard <-chan os.Signal, reloads *admin.Reloads, stop func()) {
	interactive := term.IsTerminal(int(os.Stdin.Fd()))
	for {
		select {
		case <-stopping.Done():
			return
		case <-heard:
		}
		if interactive && !term.IsTerminal(int(os.Stdin.Fd())) {
			stop()
			return
		}
		if run, err := reloads.Next(); err == nil { // it fails when the daemon stops
			<-run.Done()
		}
	}
}

// followPeriod is how often a file that is followed is looked at.
const followPeriod = 2 * time.Second

// followFile asks for a reload once a file is not what was read and has stayed the same for a
// period, so that one that is still written is left alone. It looks at what the name leads to: where
// Kubernetes mounts a ConfigMap, names are links that lead elsewhere after a change.
func followFile(stopping context.Context, path string, read os.FileInfo, period time.Duration, changed chan<- os.Signal) {
	same := func(a, b os.FileInfo) bool {
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
	}
	last := read
	for tick := time.Tick(period); ; {
		select {
		case <-stopping.Done():
			return
		case <-tick:
		}
		now, err := textfile.Within(stopping, path, func() (os.FileInfo, error) { return os.Stat(path) })
		if err != nil {
			continue // it is being replaced
		}
		if last != nil && same(now, last) && (read == nil || !same(now, read)) {
			select {
			case changed <- unix.SIGHUP:
			default: // the next reload is still to come
			}
			read = now
		}
		last = now
	}
}

// administer opens the admin socket, if the configuration has one, and answers
// there until released. A socket by default that cannot be opened does not keep the
// daemon from serving; one that the configuration asks for does.
func administer(c *config.Config, inherited net.Listener, reloads *admin.Reloads, log zerolog.Logger) (release func(), err error) {
	path := c.AdminPath()
	if path == "" {
		return func() {}, nil
	}
	s, err := admin.Listen(path, c.Admin.Group, inherited, reloads, func(pid int, uid uint32) {
		log.Warn().Uint32("uid", uid).Int("pid", pid).Msg("admin socket: connection refused for this user")
	})
	if err != nil && (c.AdminChosen() || c.Admin.Group != "") {
		return nil, err
	}
	if err != nil {
		log.Warn().Err(err).Msg("no admin socket; reload with SIGHUP")
		return func() {}, nil
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	log.Debug().Str("path", path).Msg("admin socket opened")
	return func() {
		if err := errors.Join(s.Close(), <-served); err != nil {
			log.Warn().Err(err).Msg("closing the admin socket failed")
		}
	}, nil
}
