package serving

import (
	"io"
	liblog "log"
	"os"
	"os/signal"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"google.golang.org/grpc/grpclog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor/child"
)

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
