// Overlapd serves several DNN models on one device and keeps their latency
// targets. See README.md.
package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/data"
	"github.com/overlapd/overlapd/cmd/overlapd/demo"
	"github.com/overlapd/overlapd/cmd/overlapd/planning"
	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/cmd/overlapd/watching"
	"github.com/overlapd/overlapd/daemon/admin"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

func main() { cli.Main(root(), exitStatus) }

// exitStatus tells a configuration that is wrong, here or at the daemon that a command asked, from all
// else that fails: trying again helps only with the latter.
func exitStatus(err error) int {
	// A model that cannot be served is as wrong in the file as a key.
	_, faulty := errors.AsType[config.Faults](err)
	faulty = faulty || errors.Is(err, wire.ErrModel) || errors.Is(err, ort.ErrOpLibrary)
	if e, ok := errors.AsType[*admin.Error](err); faulty || ok && e.Kind == admin.KindConfig {
		return cli.ExitConfig
	}
	return 1
}

// root returns the whole command line. Commands come from the packages below, each a part of what one
// does with a daemon.
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
	// The topics are in the order in which a new user needs them.
	cli.Topic(cmd, "Serving", serving.Commands()...)
	cli.Topic(cmd, "Watching", watching.Commands()...)
	cli.Topic(cmd, "Measuring and planning", append(data.Commands(), planning.Commands()...)...)
	// Cobra's own commands, help and completion, join these.
	cli.Topic(cmd, "Others", demo.Command(), versionCommand())
	// These are in no topic, and hidden: for packagers, and for users of older versions.
	cmd.AddCommand(cli.ManCommand(manual()),
		cli.MovedToLab("simulate"), cli.MovedToLab("reproduce"), cli.MovedToLab("device"))
	// Arguments are completed here, by the paths of commands, as a package does not know its commands' paths.
	cli.Finish(cmd, "Others", completions(), map[string]cobra.CompletionFunc{
		"overlapd check":            cli.Files("toml"),
		"overlapd models build":     cli.Words(zoo.Names()...),
		"overlapd models inspect":   cobra.FixedCompletions(zoo.Names(), cobra.ShellCompDirectiveDefault),
		"overlapd predictor export": cli.Files("json"),
		"overlapd predictor import": cli.Files("json"),
		"overlapd restart":          watching.CompleteServices,
	})
	return cmd
}
