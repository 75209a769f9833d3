package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/ort"
)

// pages writes the manual and returns its pages by the names of their files.
func pages(t *testing.T) map[string]string {
	t.Helper()
	folder := t.TempDir()
	run(t, "man", folder)
	files, err := filepath.Glob(filepath.Join(folder, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(file)] = string(text)
	}
	return found
}

// TestManualHasEverything compares the pages with the command line.
func TestManualHasEverything(t *testing.T) {
	manual := pages(t)
	commands := 0
	eachCommand(root(), func(cmd *cobra.Command) {
		page, ok := manual[strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"]
		if hidden(cmd) || cmd.Name() == "help" {
			if ok {
				t.Errorf("%s is hidden and has a page", cmd.CommandPath())
			}
			return
		}
		commands++
		if !ok {
			t.Errorf("%s has no page", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && f.Name != "version" && !strings.Contains(page, `\fB--`+f.Name+`\fP`) {
				t.Errorf("%s: the page does not mention --%s", cmd.CommandPath(), f.Name)
			}
		})
	})
	if commands < 10 {
		t.Errorf("only %d commands were compared", commands)
	}
	for _, section := range manualSections {
		if !strings.Contains(manual["overlapd.1"], "\n.SH "+section.title+"\n") {
			t.Errorf("no section %s", section.title)
		}
		for _, e := range section.entries {
			if !strings.Contains(manual["overlapd.1"], `\fB`+e.name+`\fP`) {
				t.Errorf("no entry %s", e.name)
			}
		}
	}
	for name, page := range pages(t) {
		if page != manual[name] {
			t.Errorf("%s is another each time, so packages would be, too", name)
		}
	}
}

// TestHelpInColumns keeps what a help lays out in columns as it is.
func TestHelpInColumns(t *testing.T) {
	got := asMarkdown("One\ntwo.\n\n  fixed  text\n  .more\nThree:\nStart with:  overlapd   it\n")
	want := "One\ntwo.\n\n\n      fixed  text\n      .more\n\nThree:\n\n    Start with:  overlapd   it\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestManualIsRoff lets groff read the pages, where there is one.
func TestManualIsRoff(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("no groff")
	}
	for name, page := range pages(t) {
		cmd := exec.Command(groff, "-man", "-Tutf8", "-ww")
		cmd.Stdin = strings.NewReader(page)
		var faults strings.Builder
		cmd.Stderr = &faults
		if err := cmd.Run(); err != nil || faults.Len() > 0 {
			t.Errorf("%s: %v\n%s", name, err, &faults)
		}
	}
}

// hidden reports whether a command, or one that it belongs to, is left out of
// every list.
func hidden(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd.Hidden {
			return true
		}
	}
	return false
}

// TestExamplesPassCheck runs check on every example. Where there is no ONNX
// Runtime, that is all it may complain of.
func TestExamplesPassCheck(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join("..", "..", "docs", "examples", "*.toml"))
	if err != nil || len(examples) < 3 {
		t.Fatalf("only %q, %v", examples, err)
	}
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	for _, path := range examples {
		var out bytes.Buffer
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"check", path})
		if err := cmd.Execute(); err != nil && !errors.Is(err, ort.ErrNotFound) {
			t.Errorf("%s: %v\n%s", path, err, &out)
		}
		if !bytes.Contains(out.Bytes(), []byte("[[service]]")) {
			t.Errorf("%s: the effective configuration was not printed:\n%s", path, &out)
		}
	}
}
