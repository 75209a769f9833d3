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
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
)

// version and commit identify the build; the Makefile sets commit.
var (
	version = "0.1.0"
	commit  = ""
)

func main() {
	if err := root().Execute(); err != nil {
		if !errors.Is(err, errReported) {
			fmt.Fprintln(forTerminal(os.Stderr), "overlapd:", err)
		}
		os.Exit(exitStatus(err))
	}
}

// exitConfig is the status of sysexits.h for a wrong configuration. systemd
// does not start the daemon again after it: the file would be as wrong.
const exitConfig = 78

func exitStatus(err error) int {
	var faults config.Faults
	if errors.As(err, &faults) {
		return exitConfig
	}
	if e, ok := errors.AsType[*admin.Error](err); ok && e.Kind == admin.KindConfig {
		return exitConfig
	}
	return 1
}

// errReported ends a command that has printed its error already.
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
Then:        overlapd status               what it serves and has done
             overlapd bench serve          put load on it
             overlapd top                  watch it
             overlapd reload               have it follow its file
             overlapd models inspect NAME  see how a model is cut
             overlapd check --embedded     a configuration to start from`,
		Version:       version + " (" + buildCommit() + ")",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(at *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, at.CommandPath())
	})
	topic := func(head string, members ...*cobra.Command) {
		cmd.AddGroup(&cobra.Group{ID: head, Title: head + ":"})
		cmd.AddCommand(members...)
		for _, c := range members {
			c.GroupID = head
		}
	}
	topic("Serving", serveCommand(), checkCommand(), reloadCommand(), restartCommand())
	topic("Watching", statusCommand(), topCommand(), traceCommand(), replayCommand())
	topic("Measuring and predicting", profileCommand(), trainCommand(),
		group("dataset", "Import, export and show measured operator groups",
			datasetImportCommand(), datasetExportCommand(), datasetShowCommand(), datasetDeleteCommand()))
	topic("Trying and planning", adviseCommand(),
		group("bench", "Measure what cutting costs, and put load on a running daemon", benchEngineCommand(), benchServeCommand(), benchProbeCommand()),
		group("device", "Make a device of measurements, to simulate or to emulate", deviceFitCommand(), deviceShowCommand()),
		group("models", "List and build the models of the zoo, and see how a model is cut",
			modelsListCommand(), modelsBuildCommand(), modelsInspectCommand()),
		group("reproduce", "Put a paper's tables beside ours", reproduceAbacusCommand()), simulateCommand())
	topic("Others", completionCommand())
	cmd.SetHelpCommandGroupID("Others")
	cmd.AddCommand(workerCommand(), checkStateCommand(), fitCommand(), manCommand())
	eachCommand(cmd, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if required(f) {
				f.Usage += " (required)"
			}
		})
	})
	// A group does not run without a command.
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	cmd.SetOut(forTerminal(os.Stdout))
	cmd.SetErr(forTerminal(os.Stderr))
	if err := completeValues(cmd); err != nil {
		panic(err) // two completions for one option
	}
	return cmd
}

func required(f *pflag.Flag) bool { return len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 }

// group returns a command that only holds others. Cobra would answer a
// misspelt one with the help of the group, as if all were well.
func group(use, short string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:                   use,
		Short:                 short,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return fmt.Errorf("unknown command %q for %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
		},
	}
	cmd.AddCommand(members...)
	return cmd
}

// interruptible returns a context that ends with the first signal to stop. A second one
// quits the process. Commands that do nothing before they end do without it: the first
// signal quits them.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// self returns a command line that runs a hidden command of this binary.
func self(args ...string) []string {
	path, err := os.Executable()
	if err != nil { // without /proc
		path = os.Args[0]
	}
	return append([]string{path}, args...)
}

func buildCommit() string {
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
