// Overlapd serves several DNN models on one device and keeps their latency
// targets. See README.md.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/segments/wire"
)

func main() { cli.Main(root(), exitStatus) }

// exitConfig is the status of sysexits.h for a wrong configuration. systemd
// does not start the daemon again after it: the file would be as wrong.
const exitConfig = 78

func exitStatus(err error) int {
	_, faulty := errors.AsType[config.Faults](err)
	faulty = faulty || errors.Is(err, wire.ErrModel)
	if e, ok := errors.AsType[*admin.Error](err); faulty || ok && e.Kind == admin.KindConfig {
		return exitConfig
	}
	return 1
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "overlapd",
		Short: "Serve several DNN models on one device and keep their latency targets",
		Long: `overlapd serves several DNN models on one GPU or CPU. It runs operators of different models at the
same time, and answers each query within the latency target of its service or rejects it early.

Start with:  overlapd demo                see what overlapping gains; needs no GPU
             overlapd serve --embedded    serve two built-in models on the CPU
             overlapd check --embedded    print a configuration to start from`,
	}
	cli.Topic(cmd, "Serving", serveCommand(), checkCommand(), importCommand(), reloadCommand(), restartCommand(), drainCommand())
	cli.Topic(cmd, "Watching", statusCommand(), topCommand(), traceCommand(), replayCommand(),
		cli.Group("bench", "Put load on a running daemon", benchServeCommand(), cli.ProbeCommand(), labCommand("bench engine")))
	cli.Topic(cmd, "Measuring and planning", profileCommand(), trainCommand(), adviseCommand(),
		cli.Group("dataset", "Import, export and show measured operator groups",
			datasetImportCommand(), datasetExportCommand(), datasetShowCommand(), datasetDeleteCommand()),
		cli.Group("predictor", "Share a predictor and its measurements with other daemons", predictorExportCommand(), predictorImportCommand()),
		cli.Group("models", "List and build the zoo models, and show how a model is cut",
			modelsListCommand(), modelsBuildCommand(), modelsInspectCommand()),
		cli.Group("plan", "Plan which models go on which devices, and which variant answers", planPlacementCommand(), planPipelineCommand(), planSelectionCommand()))
	cli.Topic(cmd, "Others", demoCommand(), versionCommand())
	cmd.AddCommand(workerCommand(), checkStateCommand(), fitCommand(), cli.ManCommand(manual()),
		labCommand("simulate"), labCommand("reproduce"), labCommand("device"))
	cli.Finish(cmd, "Others", completions(), map[string]cobra.CompletionFunc{
		"overlapd check":            cli.Files("toml"),
		"overlapd models build":     cli.Words(zoo.Names()...),
		"overlapd models inspect":   cobra.FixedCompletions(zoo.Names(), cobra.ShellCompDirectiveDefault),
		"overlapd predictor export": cli.Files("json"),
		"overlapd predictor import": cli.Files("json"),
		"overlapd restart":          completeServices,
	})
	return cmd
}

// labCommand says where a command is that was one of overlapd before there was a program for it.
func labCommand(path string) *cobra.Command {
	return &cobra.Command{
		Use: path[strings.LastIndexByte(path, ' ')+1:], Short: "Moved to overlapd-lab", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("%s is a command of overlapd-lab: build that with make lab, and run overlapd-lab %s", path, path)
		},
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
