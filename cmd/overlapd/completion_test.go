package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli/clitest"
)

func TestCompletedValues(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"ser", []string{"serve"}},
		{"serve --policy ", []string{"overlap\nabacus\nedf\nfcfs\nsjf\nstatic\n:4"}}, // no baselines
		{"serve --config ", []string{"toml", ":8"}},                                  // 8: the endings of files
		{"check ", []string{"toml", ":8"}},
		{"check --explain ", []string{"limits.connections", "service.target", ":4"}},
		{"models ", []string{"list", "build", "inspect"}},
		{"models build ", []string{"resnet50", "bert", ":4"}}, // 4: no files
		{"models inspect ", []string{"resnet50", ":0"}},
		{"status ", []string{":4"}},
		{"replay ", []string{":0"}}, // any file
		{"train --split ", []string{"random", "kfold", ":4"}},
		{"bench serve --arrivals ", []string{"gamma", ":4"}},
	} {
		got := clitest.Run(t, root(), append([]string{cobra.ShellCompRequestCmd}, strings.Split(c.line, " ")...)...)
		for _, want := range c.want {
			if !strings.Contains("\n"+got, "\n"+want) {
				t.Errorf("overlapd %s<TAB>: no %q in\n%s", c.line, want, got)
			}
		}
	}
	if got := clitest.Run(t, root(), cobra.ShellCompRequestCmd, "wor"); strings.Contains(got, "worker") {
		t.Error("a hidden command is completed")
	}
}

// TestCommandLine looks for each command and flag in completion, help and manual.
func TestCommandLine(t *testing.T) {
	clitest.Completion(t, root)
	clitest.Help(t, root)
	page := clitest.Manual(t, root)
	for _, section := range manualSections {
		if !strings.Contains(page, "\n.SH "+section.title+"\n") {
			t.Errorf("no section %s", section.title)
		}
		for _, e := range section.entries {
			if !strings.Contains(page, `\fB`+e[0]+`\fP`) {
				t.Errorf("no entry %s", e[0])
			}
		}
	}
	if got := clitest.Run(t, root(), "bench"); strings.Contains(got, "  overlapd bench\n") || !strings.Contains(got, "  overlapd bench [command]\n") {
		t.Errorf("the usage of bench:\n%s", got)
	}
}
