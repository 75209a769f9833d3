package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Topic adds commands to a root below a heading of its help.
func Topic(root *cobra.Command, head string, members ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: head, Title: head + ":"})
	root.AddCommand(members...)
	for _, c := range members {
		c.GroupID = head
	}
}

// Finish completes a root after its commands have been added: with help, completion and errors in
// our words. values completes flags by their names, and arguments completes those of commands by
// their paths. others is the heading of the commands that Cobra adds.
func Finish(root *cobra.Command, others string, values, arguments map[string]cobra.CompletionFunc) {
	root.Version = Version + " (" + Commit() + ")"
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(at *cobra.Command, err error) error {
		return fmt.Errorf("%s%s; see %s --help", flagFault(err), guess(nearOptions(at, err)), at.CommandPath())
	})
	root.SetHelpCommandGroupID(others)
	root.SetCompletionCommandGroupID(others)
	root.RunE, root.Args = wantCommand, cobra.ArbitraryArgs // which wantCommand refuses
	root.SetOut(ForTerminal(os.Stdout))
	root.SetErr(ForTerminal(os.Stderr))
	root.CompletionOptions.DisableNoDescFlag = true
	root.InitDefaultCompletionCmd()
	if powershell, _, err := root.Find([]string{"completion", "powershell"}); err == nil {
		completion := powershell.Parent()
		completion.RunE, completion.Args = wantCommand, nil
		completion.RemoveCommand(powershell)
	}
	Each(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if required(f) {
				f.Usage += " (required)"
			}
		})
	})
	useOurWords(root)
	// A group does not run without a command. The root's own flags say what its commands help and version
	// do, and are left out, so that its help fits on a screen.
	root.SetUsageTemplate(strings.NewReplacer(
		"Usage:{{if .Runnable}}", "Usage:{{if and .Runnable (not .HasAvailableSubCommands)}}",
		"{{if .HasAvailableLocalFlags}}", "{{if and .HasParent .HasAvailableLocalFlags}}",
		"{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}", "{{if .HasAvailableSubCommands}}{{if .HasParent}}\n {{end}} {{.CommandPath}} [command]{{end}}",
	).Replace(root.UsageTemplate()))
	if err := complete(root, values, arguments); err != nil {
		panic(err) // two completions for one option
	}
	Each(root, func(c *cobra.Command) {
		if c.Args != nil && !c.HasSubCommands() {
			c.Args = checkLine(c.Args)
		}
	})
}

// complete adds completions for the values of flags, and for the arguments of commands.
func complete(root *cobra.Command, values, arguments map[string]cobra.CompletionFunc) (fault error) {
	Each(root, func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if complete := values[f.Name]; complete != nil {
				fault = errors.Join(fault, cmd.RegisterFlagCompletionFunc(f.Name, complete))
			}
		})
		if complete := arguments[cmd.CommandPath()]; complete != nil {
			cmd.ValidArgsFunction = complete
		} else if cmd.Args != nil && cmd.Args(cmd, []string{"any"}) != nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	})
	return fault
}

func required(f *pflag.Flag) bool { return len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 }

// Group returns a command that only holds others.
func Group(use, short string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, DisableFlagsInUseLine: true, RunE: wantCommand}
	cmd.AddCommand(members...)
	return cmd
}

// MovedToLab says where a command is that was one of overlapd before there was a program for it.
func MovedToLab(path string) *cobra.Command {
	return &cobra.Command{
		Use: path[strings.LastIndexByte(path, ' ')+1:], Short: "Moved to overlapd-lab", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("%s is a command of overlapd-lab: build that with make lab, and run overlapd-lab %s", path, path)
		},
	}
}

// wantCommand refuses a misspelt command, which Cobra would answer with the group's help.
func wantCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	return fmt.Errorf("unknown command %q for %q%s; see %s --help", args[0], cmd.CommandPath(), guess(cmd.SuggestionsFor(args[0])), cmd.CommandPath())
}

// nearOptions returns the options that a misspelt one may be, by Cobra's rule for
// commands.
func nearOptions(cmd *cobra.Command, err error) []string {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || missing.GetSpecifiedShortnames() != "" {
		return nil
	}
	options := cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			options.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return options.SuggestionsFor("--" + missing.GetSpecifiedName())
}

// guess asks whether one of these words was meant.
func guess(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(words, " or ") + "?"
}

// Words completes one of the words of a list.
func Words(list ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// Files completes files with an ending.
func Files(ending string) cobra.CompletionFunc {
	return cobra.FixedCompletions([]string{ending}, cobra.ShellCompDirectiveFilterFileExt)
}

// Each visits a command and all below it.
func Each(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		Each(sub, visit)
	}
}
