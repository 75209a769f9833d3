package serving

import (
	"context"
	"io"
	liblog "log"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"google.golang.org/grpc/grpclog"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/topology"
	"github.com/overlapd/overlapd/ort"
)

// NewDaemon returns a daemon whose workers are processes of this binary. Serve, profile and demo all make
// theirs here, so that they accept the same models and give the same reasons.
func NewDaemon(c config.Config, o daemon.Options) (*daemon.Daemon, error) {
	// A damaged model that is loaded later keeps nobody else from serving.
	atStart := c.AtStart()
	if err := daemon.CheckModels(&atStart); err != nil {
		return nil, err
	}
	if !c.Emulated() {
		// The workers load it, not the daemon. Looking for it here makes its absence one error at the
		// start, instead of one for each worker.
		lib, err := ort.Load()
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

// DaemonOptions returns what a daemon needs to know of its binary and its host. Profile and demo add
// to it, serve adds its listeners.
func DaemonOptions(log zerolog.Logger) daemon.Options {
	return daemon.Options{
		Worker:  cli.Self("worker"),
		Check:   CheckState(),
		Version: cli.Version,
		Commit:  cli.Commit(),
		Device:  cli.CPU(),
		Nodes:   topology.Usable(),

		// Cores are what the host has, Processors what the daemon's own goroutines may use.
		Processors: runtime.GOMAXPROCS(0),

		Fit: fitElsewhere,
		GPU: gpu.Options{Probe: tryGPU},
		Log: log,
	}
}

// OfflineOptions returns the options of a daemon that is asked what it would be on this host,
// and does not serve. Without ONNX Runtime its version is unknown.
func OfflineOptions(c *config.Config) daemon.Options {
	o := DaemonOptions(zerolog.Nop())
	if !c.Emulated() {
		if lib, err := ort.Load(); err == nil {
			o.Runtime = lib.Version()
		}
	}
	return o
}

// StopSignals returns contexts that end with the first and the second signal to stop.
func StopSignals() (ctx, hurry context.Context, stop, release func()) {
	ctx, first := context.WithCancel(context.Background())
	hurry, second := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	go func() {
		// timeout(1) and some shells signal the process and then its group, which is one wish to stop.
		const pause = 200 * time.Millisecond
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

// NewLogger returns the logger of a daemon. Zerolog's formats and level are global, so a process has
// one log; a reload changes its level for all that hold a copy of it.
func NewLogger(c config.Config, out io.Writer) zerolog.Logger {
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
	// Go's own log is put back: what is logged after the daemon goes to standard error as it did.
	return func() {
		liblog.SetOutput(out)
		liblog.SetFlags(flags)
		_ = w.Close() // what gRPC still writes is lost
		<-read
	}
}

// outliveLog makes a write to a log without a reader fail. Go would end the daemon by
// SIGPIPE, whose log collector may be restarted. The signal is caught and not ignored
// because children inherit what is ignored.
func outliveLog() (release func()) {
	pipes := make(chan os.Signal, 1) // never read; a full channel drops signals
	signal.Notify(pipes, unix.SIGPIPE)
	return func() { signal.Stop(pipes) }
}
