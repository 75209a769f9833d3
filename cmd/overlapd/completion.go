package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/models/zoo"
)

// shells are the shells that have a completion. Install is a command line that
// installs it for one user.
var shells = []struct {
	name, install string
	write         func(root *cobra.Command, to io.Writer) error
}{
	{
		"bash", "overlapd completion bash > ~/.local/share/bash-completion/completions/overlapd",
		func(root *cobra.Command, to io.Writer) error { return root.GenBashCompletionV2(to, true) },
	},
	{
		"zsh", `overlapd completion zsh > "${fpath[1]}/_overlapd"`,
		func(root *cobra.Command, to io.Writer) error { return root.GenZshCompletion(to) },
	},
	{
		"fish", "overlapd completion fish > ~/.config/fish/completions/overlapd.fish",
		func(root *cobra.Command, to io.Writer) error { return root.GenFishCompletion(to, true) },
	},
}

func completionCommand() *cobra.Command {
	var members []*cobra.Command
	for _, s := range shells {
		members = append(members, &cobra.Command{
			Use:     s.name,
			Short:   "Print the completion for " + s.name,
			Example: "  " + s.install,
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return s.write(cmd.Root(), cmd.OutOrStdout())
			},
		})
	}
	cmd := group("completion", "Print what lets a shell complete commands and options", members...)
	cmd.Long = "Completion prints a script for a shell. The Debian package installs all of them."
	return cmd
}

// completeValues adds completions for the values of options, which mean the same in
// every command that has them, and for the arguments of commands.
func completeValues(root *cobra.Command) error {
	zooModels := cobra.FixedCompletions(zoo.Names(), cobra.ShellCompDirectiveDefault)
	values := map[string]cobra.CompletionFunc{
		"config":    files("toml"),
		"admin":     files("sock"),
		"arrivals":  words("poisson", "constant", "gamma"),
		"dispatch":  words("round-robin", "random", "least-loaded", "central"),
		"format":    words("abacus"),
		"knows":     words("all", "order", "nothing"),
		"predictor": files("json"),
		"recipe":    words("overlapd", "paper"),
		"scenario":  files("json"),
		"split": func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			splits := []string{"random", "grouped"}
			if cmd.Name() == "train" {
				splits = append(splits, "kfold")
			}
			return splits, cobra.ShellCompDirectiveNoFileComp
		},
		"policy": words(policyNames()...),
		"model":  zooModels,
	}
	var fault error
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if complete := values[f.Name]; complete != nil {
				fault = errors.Join(fault, cmd.RegisterFlagCompletionFunc(f.Name, complete))
			}
		})
		switch cmd.CommandPath() {
		case "overlapd check":
			cmd.ValidArgsFunction = files("toml")
		case "overlapd models build":
			cmd.ValidArgsFunction = words(zoo.Names()...)
		case "overlapd models inspect":
			cmd.ValidArgsFunction = zooModels
		case "overlapd device show":
			cmd.ValidArgsFunction = files("json")
		case "overlapd restart", "overlapd dataset delete": // would have to ask a daemon or open a state file
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		default:
			if cmd.Args != nil && cmd.Args(cmd, []string{"any"}) != nil {
				cmd.ValidArgsFunction = cobra.NoFileCompletions
			}
		}
	})
	return fault
}

// words completes one of some words.
func words(list ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// files completes the names of files that end like this.
func files(ending string) cobra.CompletionFunc {
	return cobra.FixedCompletions([]string{ending}, cobra.ShellCompDirectiveFilterFileExt)
}

// eachCommand visits a command and all below it.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, visit)
	}
}
