package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestMistakesSayWhatToDo: no sentence is the library's, which speaks of args and flags in
// the plural of nobody.
func TestMistakesSayWhatToDo(t *testing.T) {
	for line, want := range map[string]string{
		"import":                      "give DIR: overlapd import DIR; see overlapd import --help",
		"import a b":                  `overlapd import takes DIR, not "a" "b"; see overlapd import --help`,
		"demo x":                      `overlapd demo takes no arguments, not "x"; see overlapd demo --help`,
		"check a b":                   `overlapd check takes [CONFIG], not "a" "b"; see overlapd check --help`,
		"demo --duration":             "--duration needs a value; see overlapd demo --help",
		"demo --duration x":           `--duration must be a time such as 1.5s, not "x"; see overlapd demo --help`,
		"bench serve --rate x":        `--rate must be a number, not "x"; see overlapd bench serve --help`,
		"demo --seed -1":              `--seed must be a whole number, 0 or more, not "-1"; see overlapd demo --help`,
		"dataset export":              "give --out; see overlapd dataset export --help",
		"serve --config a --embedded": "--config and --embedded cannot be used together; see overlapd serve --help",
		"plan selection --config a":   "--config needs --service; see overlapd plan selection --help",
		"simulate --services a":       "simulate is a command of overlapd-lab: build that with make lab, and run overlapd-lab simulate",
		"bench engine":                "bench engine is a command of overlapd-lab: build that with make lab, and run overlapd-lab bench engine",
		"nix":                         `unknown command "nix" for "overlapd"; see overlapd --help`,
		"demmo":                       `unknown command "demmo" for "overlapd"; did you mean demo?; see overlapd --help`,
		"completion powershell":       `unknown command "powershell" for "overlapd completion"; see overlapd completion --help`,
	} {
		cmd := root()
		cmd.SetArgs(strings.Fields(line))
		if err := cmd.Execute(); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", line, err, want)
		}
	}
}

// TestHelpIsOurs: commands that the library adds say what they do as ours do.
func TestHelpIsOurs(t *testing.T) {
	for _, line := range []string{"--help", "demo --help", "completion --help", "completion bash --help"} {
		cmd, out := root(), new(bytes.Buffer)
		cmd.SetOut(out)
		cmd.SetArgs(strings.Fields(line))
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, theirs := range []string{"help for ", "version for ", "Help about any", "Generate the autocompletion", "sub-command's"} {
			if strings.Contains(out.String(), theirs) {
				t.Errorf("overlapd %s says %q:\n%s", line, theirs, out)
			}
		}
	}
}
