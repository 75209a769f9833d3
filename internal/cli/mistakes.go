package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// useOurWords describes what Cobra adds to the commands as ours are described.
func useOurWords(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultVersionFlag()
	Each(root, func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		for name, usage := range map[string]string{"help": "show this help", "version": "show the version"} {
			if f := c.Flags().Lookup(name); f != nil && strings.HasSuffix(f.Usage, " for "+c.DisplayName()) {
				f.Usage = usage
			}
		}
		if shell := c.Name(); c.HasParent() && c.Parent().Name() == "completion" {
			c.Short = "Write the completion script for " + shell
			_, how, _ := strings.Cut(c.Long, "\n")
			c.Long = c.Short + ", and show how to load it for this session or for all." + "\n" + how
		}
		if c.Parent() != root {
			return
		}
		switch c.Name() {
		case "help":
			c.Short = "Show the help of a command"
		case "completion":
			c.Short = "Write shell completion for commands, flags and names"
			c.Long = c.Short + ". Each shell's help shows how to load the script."
		}
	})
}

// checkLine checks a command line before the command does anything, by the annotations
// that Cobra has from MarkFlagRequired and its like: its own sentences come later.
func checkLine(arguments cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		fault := argumentFault(cmd, args, arguments(cmd, args))
		if fault == "" {
			fault = missingFlags(cmd)
		}
		if fault == "" {
			fault = togetherFault(cmd)
		}
		if fault == "" {
			return nil
		}
		return fmt.Errorf("%s; see %s --help", fault, cmd.CommandPath())
	}
}

// argumentFault says what is wrong with the arguments, if something is.
func argumentFault(cmd *cobra.Command, args []string, err error) string {
	_, takes, some := strings.Cut(cmd.Use, " ")
	switch {
	case err == nil:
		return ""
	case len(args) == 0:
		return fmt.Sprintf("give %s: %s %[1]s", takes, cmd.CommandPath())
	case !some:
		takes = "no arguments"
	}
	return fmt.Sprintf("%s takes %s, not %s", cmd.CommandPath(), takes, strings.Trim(fmt.Sprintf("%q", args), "[]"))
}

func missingFlags(cmd *cobra.Command) string {
	var missing []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if required(f) && !f.Changed {
			missing = append(missing, "--"+f.Name)
		}
	})
	if len(missing) == 0 {
		return ""
	}
	return "give " + strings.Join(missing, " and ")
}

// togetherFault says which of the options that are given exclude each other, or what
// those that are given need besides.
func togetherFault(cmd *cobra.Command) (fault string) {
	given := func(group string, want bool) (names []string) {
		for _, name := range strings.Fields(group) {
			if f := cmd.Flags().Lookup(name); f != nil && f.Changed == want {
				names = append(names, "--"+name)
			}
		}
		return names
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		for _, group := range f.Annotations["cobra_annotation_mutually_exclusive"] {
			if both := given(group, true); len(both) > 1 {
				fault = strings.Join(both, " and ") + " cannot be used together"
			}
		}
		for _, group := range f.Annotations["cobra_annotation_required_if_others_set"] {
			if there, missing := given(group, true), given(group, false); len(there) > 0 && len(missing) > 0 {
				fault = strings.Join(there, " and ") + " needs " + strings.Join(missing, " and ")
			}
		}
	})
	return fault
}

// flagFault says what is wrong with an option.
func flagFault(err error) string {
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return "--" + missing.GetFlag().Name + " needs a value"
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	f := invalid.GetFlag()
	for want, types := range map[string][]string{
		"a time such as 1.5s": {"duration"}, "true or false": {"bool"}, "a whole number": {"int", "int64", "ints", "intSlice"},
		"a whole number, 0 or more": {"uint", "uint16", "uint64"}, "a number": {"float64"},
	} {
		if slices.Contains(types, f.Value.Type()) {
			return fmt.Sprintf("--%s must be %s, not %q", f.Name, want, invalid.GetValue())
		}
	}
	return fmt.Sprintf("--%s is %q: %v", f.Name, invalid.GetValue(), invalid.Unwrap())
}
