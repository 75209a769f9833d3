package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// run runs a command line and returns what it prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatalf("overlapd %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

func TestCompletedValues(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"ser", []string{"serve"}},
		{"serve --policy ", []string{"overlap\nabacus\nedf\nfcfs\nsjf\nstatic\n:4"}}, // no baselines
		{"simulate --policy ", []string{"overlap", "nexus", ":4"}},
		{"bench engine --model ", []string{"resnet50", "bert"}},
		{"serve --config ", []string{"toml", ":8"}}, // 8: the endings of files
		{"check ", []string{"toml", ":8"}},
		{"check --explain ", []string{"limits.connections", "service.target", ":4"}},
		{"models ", []string{"list", "build", "inspect"}},
		{"models build ", []string{"resnet50", "bert", ":4"}}, // 4: no files
		{"models inspect ", []string{"resnet50", ":0"}},
		{"device show ", []string{"json", ":8"}},
		{"status ", []string{":4"}},
		{"replay ", []string{":0"}}, // any file
		{"train --split ", []string{"random", "kfold", ":4"}},
		{"device fit --split ", []string{"grouped", ":4"}},
		{"bench serve --arrivals ", []string{"gamma", ":4"}},
		{"simulate --scenario ", []string{"json", ":8"}},
	} {
		got := run(t, append([]string{cobra.ShellCompRequestCmd}, strings.Split(c.line, " ")...)...)
		for _, want := range c.want {
			if !strings.Contains("\n"+got, "\n"+want) {
				t.Errorf("overlapd %s<TAB>: no %q in\n%s", c.line, want, got)
			}
		}
	}
	if got := run(t, cobra.ShellCompRequestCmd, "device", "fit", "--split", ""); strings.Contains(got, "kfold") {
		t.Error("a device cannot be fitted with kfold, and it is completed")
	}
	if got := run(t, cobra.ShellCompRequestCmd, "wor"); strings.Contains(got, "worker") {
		t.Error("a hidden command is completed")
	}
}

// TestCompletionTellsAll asks, as a shell does, for each command and option.
func TestCompletionTellsAll(t *testing.T) {
	commands := 0
	eachCommand(root(), func(cmd *cobra.Command) {
		if hidden(cmd) {
			return
		}
		commands++
		path := strings.Fields(cmd.CommandPath())[1:]
		told := func(more ...string) string {
			return "\n" + run(t, slices.Concat([]string{cobra.ShellCompRequestCmd}, path, more)...)
		}
		names := told("")
		for _, member := range cmd.Commands() {
			if got := strings.Contains(names, "\n"+member.Name()+"\t"+member.Short+"\n"); got == hidden(member) {
				t.Errorf("%s: completed %t", member.CommandPath(), got)
			}
		}
		options := told("--")
		var given []string // the others are told of when those that are required are there
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if required(f) {
				given = append(given, "--"+f.Name, "any")
			}
		})
		if len(given) > 0 {
			options += told(append(given, "--")...)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if got := strings.Contains(options, "\n--"+f.Name+"\t") || strings.Contains(options, "\n--"+f.Name+"\n"); got == f.Hidden {
				t.Errorf("%s --%s: completed %t", cmd.CommandPath(), f.Name, got)
			}
		})
	})
	if commands < 30 {
		t.Errorf("only %d commands were asked for", commands)
	}
}

// TestHelpTellsAll looks for each command under one head of the first help, and
// for what each option takes.
func TestHelpTellsAll(t *testing.T) {
	cmd := root()
	for _, c := range cmd.Commands() {
		if !hidden(c) && c.GroupID == "" {
			t.Errorf("%s has no head", c.Name())
		}
	}
	eachCommand(cmd, func(c *cobra.Command) {
		if hidden(c) {
			return
		}
		if c.Runnable() && !c.HasAvailableSubCommands() && c.Name() != "help" && c.Example == "" && c.Long == "" {
			t.Errorf("%s: neither text nor example", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if kind, text := pflag.UnquoteUsage(f); strings.HasSuffix(kind, "Slice") || strings.HasSuffix(kind, "Array") || text == "" {
				t.Errorf("%s --%s takes %q: %q", c.CommandPath(), f.Name, kind, text)
			}
		})
	})
	if got := run(t, "bench"); strings.Contains(got, "  overlapd bench\n") || !strings.Contains(got, "  overlapd bench [command]\n") {
		t.Errorf("the usage of bench:\n%s", got)
	}
}
