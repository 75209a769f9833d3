package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/internal/cli"
)

// serveCommand is what units and images start. What it reads it may read again later: a reload asks
// the same options.
func serveCommand() *cobra.Command {
	var o Options
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
			if err := o.checkControl(cmd); err != nil {
				return err
			}
			changes := o.changes()
			c, err := o.Config()
			if err != nil {
				return err
			}
			if o.dryRun {
				// The plan is printed with an error, too: up to there it shows what was found.
				plan, err := daemon.PlanGPU(c, daemon.Options{GPU: gpu.Options{Probe: tryGPU}, Log: NewLogger(c, os.Stderr)})
				fmt.Fprint(cmd.OutOrStdout(), plan)
				return err
			}
			return serve(c, &o, changes, os.Stderr)
		},
	}
	f := cmd.Flags()
	cli.ConfigFlag(cmd, &o.Path, "configuration file", "embedded", "model-repository")
	f.BoolVar(&o.Embedded, "embedded", false, "serve the built-in configuration: resnet50 and bert on the CPU")
	o.repositoryFlags(cmd)
	f.StringVar(&o.listen, "listen", "", "HTTP address, instead of the configuration's")
	f.StringVar(&o.grpc, "grpc-listen", "", "gRPC address, instead of the configuration's")
	f.StringVar(&o.policy, "policy", "", "scheduling policy, instead of the configuration's: overlap, abacus, edf, fcfs, sjf or static")
	f.StringVar(&o.on, "on", "", `device, if the configuration names none: "cpu", or index or UUID of a GPU`)
	f.BoolVar(&o.follow, "follow", false, "reload when the file of --config changes, as on SIGHUP")
	cmd.MarkFlagsMutuallyExclusive("config", "embedded", "model-repository")
	cmd.MarkFlagsMutuallyExclusive("follow", "embedded", "model-repository")
	f.BoolVar(&o.dryRun, "dry-run", false, "print how GPUs would be partitioned and their memory divided, and change nothing")
	return cmd
}

// serve runs the daemon until a signal stops it. A reload reads the configuration again, also
// when changes reports one, unless it is nil.
func serve(c config.Config, from *Options, changes func(context.Context, chan<- os.Signal), out io.Writer) error {
	defer outliveLog()()
	log := NewLogger(c, out)
	defer adoptLines(log)()
	ctx, hurry, stop, release := StopSignals()
	defer release()
	// One is kept, also while the daemon is opened: those after it would reload the same file.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP)
	defer signal.Stop(hangups)
	// Until the daemon is open nothing asks systemd for more time; later it does so itself.
	const opening = 5 * time.Minute
	if err := notify(fmt.Sprintf("STATUS=opening the state and the models\nEXTEND_TIMEOUT_USEC=%d", opening.Microseconds())); err != nil {
		log.Warn().Err(err).Msg("notifying systemd failed")
	}
	// Files that a service manager passed would leak into workers if nobody took them.
	given, err := access.Inherit(activation.Files(true), &c)
	if err != nil {
		return err
	}
	given.Each(func(name string, ln net.Listener) {
		log.Info().Str("inherited", name).Stringer("address", ln.Addr()).Msg("using a socket passed by the service manager")
	})
	// The admin socket answers before the daemon is open, since that may take minutes, and a command that
	// asks meanwhile should be told why.
	r := &reloader{read: from.Config, tell: notify, log: log}
	reloads := admin.NewReloads(ctx, r)
	unadministered, err := administer(&c, given.Admin, reloads, log)
	if err != nil {
		return err
	}
	defer unadministered()
	o := DaemonOptions(log)
	o.Listener, o.GRPCListener = given.HTTP, given.GRPC
	if from.repository != "" {
		o.Reread = from.reread
	}
	d, err := NewDaemon(c, o)
	if err != nil {
		return err
	}
	r.follow(d)
	// From here three goroutines act on what comes from outside, until the daemon has ended.
	ended, end := context.WithCancel(context.Background())
	var reporting, listening sync.WaitGroup
	reporting.Go(func() { reportState(ctx, ended, d, c, r) })
	listening.Go(func() { onHangup(ctx, hangups, reloads, stop) })
	if changes != nil {
		listening.Go(func() { changes(ctx, hangups) })
	}
	err = d.Run(ctx, hurry)
	// In this order: systemd hears that the daemon has ended, nothing asks for a reload any more, and
	// the one that runs ends. Then the socket may close.
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
	// A configuration that names a socket or a group counts on it. Without them a daemon serves as well,
	// and SIGHUP reloads it.
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

// reportState reports to systemd and, on a terminal, to people, until the daemon has ended.
func reportState(stopping, ended context.Context, d *daemon.Daemon, c config.Config, r *reloader) {
	// The daemon knows when it is ready and what is missing; here is only how that is said.
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
		// In a log for programs the greeting would be lines that none can parse.
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

// greeting is for a person at a terminal: requests to paste into another one, where program
// runs overlapd. Models of half precision have none, since FP16 has no JSON form.
func greeting(program string, addr net.Addr, c config.Config) string {
	if addr.Network() == "unix" {
		return ""
	}
	url, curl, authority := "http://"+addr.String(), "curl -s", ""
	// Which authority signed the certificate is not known, so its file is left to be filled in.
	if c.TLS.Cert != "" {
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
	// A request is shown for models whose inputs are known. Those of other models are known only once they
	// are loaded; bench asks the daemon for them.
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
	fmt.Fprintf(&b, "  %s bench serve --url %s --service %s --rate 4 --duration 10s%s\n\n", program, url, strings.Join(names[:min(len(names), mostNamed)], ","), authority)
	fmt.Fprintf(&b, "Ctrl-C stops the daemon after it has answered the accepted requests.\n\n")
	return b.String()
}

// mostNamed is how many services the first messages name.
const mostNamed = 4

// onHangup begins a reload with each SIGHUP, one after the other, until
// stopping ends. A terminal that is gone sends SIGHUP as well. It stops the
// daemon, since nobody is left to do that.
func onHangup(stopping context.Context, heard <-chan os.Signal, reloads *admin.Reloads, stop func()) {
	interactive := term.IsTerminal(int(os.Stdin.Fd()))
	for {
		// Signals that come while a reload runs are one more reload, of the file as it is then.
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
