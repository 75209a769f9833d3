// Package cli holds what the command lines of overlapd and overlapd-lab share: how commands are
// completed and explained, how they print results, progress and mistakes, and where they find
// models.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/internal/report"
)

// Version is the version of overlapd.
const Version = "0.1.0"

// commit is set by the Makefile.
var commit = ""

// ExitConfig is the status of sysexits.h for a wrong configuration. systemd
// does not start the daemon again after it: the file would be as wrong.
const ExitConfig = 78

// Main runs a command line and exits if it fails, with what status returns of its error.
func Main(root *cobra.Command, status func(error) int) {
	if err := root.Execute(); err != nil {
		if !errors.Is(err, ErrReported) {
			fmt.Fprintf(ForTerminal(os.Stderr), "%s: %s%s\n", root.Name(), err, remedy(err))
		}
		os.Exit(status(err))
	}
}

// remedy returns what helps where the process has come to one of its limits.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE):
		return "; the process has reached its limit of open files: raise ulimit -n, or LimitNOFILE= of its unit, to at least 4096"
	case errors.Is(err, unix.EFBIG):
		return "; the process has reached its file size limit, which includes shared memory: lift ulimit -f, or LimitFSIZE= of its unit, or lower worker.input_bytes and worker.output_bytes"
	case errors.Is(err, unix.ENOSPC):
		return "; free space there"
	}
	return ""
}

// ErrReported ends a command that has printed its error already.
var ErrReported = errors.New("reported")

// Interruptible returns a context that ends with the first signal to stop. A second one
// quits the process, as the first does with commands that do nothing before they end.
func Interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Self returns a command line that runs a hidden command of this binary.
func Self(args ...string) []string {
	path, err := os.Executable()
	if err != nil { // without /proc
		path = os.Args[0]
	}
	return append([]string{path}, args...)
}

// Commit returns the commit that this binary was built from.
func Commit() string {
	if commit != "" {
		return commit
	}
	if revision := buildSetting("vcs.revision"); len(revision) >= 12 {
		return revision[:12]
	}
	return "unknown"
}

func buildSetting(key string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == key {
				return s.Value
			}
		}
	}
	return ""
}

// Output is how a command prints its result: as text, or as one JSON object.
type Output struct{ JSON bool }

// Flags adds the flag --json.
func (o *Output) Flags(f *pflag.FlagSet) {
	f.BoolVar(&o.JSON, "json", false, "print one JSON object")
}

// Print writes v as JSON, or else what writeText writes.
func (o *Output) Print(w io.Writer, v any, writeText func(io.Writer) error) error {
	if o.JSON {
		return report.WriteJSON(w, v)
	}
	return writeText(w)
}
