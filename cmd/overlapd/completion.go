package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/models/zoo"
)

// shells are those for which there is a completion, and what writes it.
var shells = []struct {
	name    string
	install string // one line that does it for the person who asks
	write   func(root *cobra.Command, to io.Writer) error
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

// completeValues lets shells complete the values of options that mean the same
// in every command that has them.
func completeValues(root *cobra.Command) error {
	values := map[string]cobra.CompletionFunc{
		"config": files("toml"),
		"admin":  files("sock"),
		"policy": func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return policyNames(), cobra.ShellCompDirectiveNoFileComp
		},
		"model": func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return zoo.Names(), cobra.ShellCompDirectiveDefault
		},
	}
	var fault error
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if complete := values[f.Name]; complete != nil && fault == nil {
				fault = cmd.RegisterFlagCompletionFunc(f.Name, complete)
			}
		})
		if cmd.Name() == "check" {
			cmd.ValidArgsFunction = files("toml")
		}
	})
	if fault != nil {
		return fmt.Errorf("completion: %w", fault)
	}
	return nil
}

// files completes the names of files that end like this.
func files(ending string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{ending}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// eachCommand visits a command and all below it.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, visit)
	}
}
