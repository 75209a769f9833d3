package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "complete -o default -F __start_overlapd overlapd",
		"zsh":  "#compdef overlapd",
		"fish": "complete -c overlapd",
	} {
		if got := run(t, "completion", shell); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", shell, want, got)
		}
	}
	if got := run(t, "completion"); strings.Contains(got, "powershell") || !strings.Contains(got, "fish") {
		t.Errorf("the help of completion:\n%s", got)
	}
}

func TestCompletedValues(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"ser", []string{"serve"}},
		{"serve --policy ", []string{"overlap", "edf", "abacus"}},
		{"bench engine --model ", []string{"resnet50", "bert"}},
		{"serve --config ", []string{"toml", ":8"}}, // 8: the endings of files
		{"check ", []string{"toml", ":8"}},
		{"models ", []string{"list", "build", "inspect"}},
	} {
		got := run(t, append([]string{cobra.ShellCompRequestCmd}, strings.Split(c.line, " ")...)...)
		for _, want := range c.want {
			if !strings.Contains("\n"+got, "\n"+want) {
				t.Errorf("overlapd %s<TAB>: no %q in\n%s", c.line, want, got)
			}
		}
	}
	if got := run(t, cobra.ShellCompRequestCmd, "wor"); strings.Contains(got, "worker") {
		t.Error("a hidden command is completed")
	}
}
