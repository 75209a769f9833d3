package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli/clitest"
	"github.com/overlapd/overlapd/ort"
)

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process that the race detector watches takes a second to end
	if kind := os.Getenv(probeVariable); kind != "" {
		beProbe(kind)
		return
	}
	testscript.Main(m, map[string]func(){"overlapd-lab": main})
}

// TestScripts runs shell sessions, as those of overlapd.
func TestScripts(t *testing.T) {
	library, missing := ort.Find()
	examples, err := filepath.Abs(filepath.Join("..", "..", "docs", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache"))
			e.Setenv("EXAMPLES", examples)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv(ort.PathVariable, library)
			return nil
		},
		Condition: func(condition string) (bool, error) { return condition == "ort" && missing == nil, nil },
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"json": clitest.JSON, "perfetto": clitest.Perfetto},
	})
}

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
