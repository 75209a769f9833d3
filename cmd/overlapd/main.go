// Overlapd serves several DNN models on one device and keeps their latency
// targets. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// version and commit identify the build; the Makefile sets commit.
var (
	version = "0.1.0"
	commit  = ""
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		if !errors.Is(err, errReported) {
			fmt.Fprintln(os.Stderr, "overlapd:", err)
		}
		os.Exit(1)
	}
}

// errReported ends a command that has said itself what is wrong.
var errReported = errors.New("reported")

// root returns the command line: one file for each subcommand.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "overlapd",
		Short: "Serve several DNN models on one device and keep their latency targets",
		Long: `overlapd runs several DNN services on one device and answers every query inside
its latency target, or says early that it cannot. Each service is an ONNX model
in a worker process of its own, cut into operators; a scheduler decides, round
by round, which operators of which queries run.

Start with:  overlapd serve --embedded     two zoo models on the CPU
Then:        overlapd bench serve          put load on it
             overlapd models inspect NAME  see how a model is cut`,
		Version:       version + " (" + buildCommit() + ")",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(serveCommand(), checkCommand(), modelsCommand(), benchCommand(), statusCommand(),
		workerCommand())
	return cmd
}

// buildCommit returns the commit that the binary was built from.
func buildCommit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return s.Value[:12]
			}
		}
	}
	return "unknown"
}
