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
	"slices"
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
	cmd.AddCommand(serveCommand(), profileCommand(), trainCommand(), adviseCommand(), checkCommand(), statusCommand(), topCommand(), traceCommand(), reloadCommand(), restartCommand(),
		replayCommand(), simulateCommand(), workerCommand(), checkStateCommand(), fitCommand(), completionCommand(), manCommand(),
		group("bench", "Measure what cutting costs, and put load on a running daemon", benchEngineCommand(), benchServeCommand(), benchProbeCommand()),
		group("dataset", "Import, export and show measured operator groups",
			datasetImportCommand(), datasetExportCommand(), datasetShowCommand(), datasetDeleteCommand()),
		group("device", "Make a device of measurements, to simulate or to emulate", deviceFitCommand(), deviceShowCommand()),
		group("models", "List and build the models of the zoo, and see how a model is cut",
			modelsListCommand(), modelsBuildCommand(), modelsInspectCommand()),
		group("reproduce", "Put a paper's tables beside ours", reproduceAbacusCommand()))
	cmd.SetOut(forTerminal(os.Stdout))
	cmd.SetErr(forTerminal(os.Stderr))
	arrange(cmd)
	if err := completeValues(cmd); err != nil {
		panic(err) // two completions for one option
	}
	return cmd
}

// topics are the groups in which the help lists commands.
var topics = []struct {
	head    string
	members []string
}{
	{"Serving", []string{"serve", "check", "reload", "restart"}},
	{"Watching", []string{"status", "top", "trace", "replay"}},
	{"Measuring and predicting", []string{"profile", "train", "dataset"}},
	{"Trying and planning", []string{"advise", "bench", "device", "models", "reproduce", "simulate"}},
	{"Others", []string{"completion", "help"}},
}

// arrange puts commands into their groups, marks the options that are required, and
// omits from the usage of a group that it runs without a command.
func arrange(root *cobra.Command) {
	for _, t := range topics {
		root.AddGroup(&cobra.Group{ID: t.head, Title: t.head + ":"})
		for _, c := range root.Commands() {
			if slices.Contains(t.members, c.Name()) {
				c.GroupID = t.head
			}
		}
	}
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if required(f) {
				f.Usage += " (required)"
			}
		})
	})
	root.SetHelpCommandGroupID(topics[len(topics)-1].head)
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
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
