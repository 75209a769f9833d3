package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process that the race detector watches takes a second to end
	if kind := os.Getenv(probeVariable); kind != "" {
		beProbe(kind)
		return
	}
	testscript.Main(m, map[string]func(){"overlapd-lab": main})
}

func TestScripts(t *testing.T) { clitest.Scripts(t, nil) }

// TestCommandLine looks for each command and flag in completion, help and manual.
func TestCommandLine(t *testing.T) {
	clitest.Completion(t, root)
	clitest.Help(t, root)
	clitest.Manual(t, root)
	for line, want := range map[string]string{
		"simulate --policy ":    "nexus\n",
		"simulate --scenario ":  "json\n:8",
		"bench engine --model ": "resnet50\n",
		"device show ":          "json\n:8",
		"device fit --split ":   "grouped\n:4",
	} {
		if got := clitest.Run(t, root(), append([]string{cobra.ShellCompRequestCmd}, strings.Split(line, " ")...)...); !strings.Contains(got, want) {
			t.Errorf("overlapd-lab %s<TAB>: no %q in\n%s", line, want, got)
		}
	}
}
