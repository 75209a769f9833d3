// Package clitest checks command lines, for tests of their programs, and has the commands that their
// scripts need besides testscript's own.
package clitest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/internal/cli"
)

// Run runs a command line and returns what it prints.
func Run(t *testing.T, cmd *cobra.Command, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatalf("%s %s: %v", cmd.Name(), strings.Join(args, " "), err)
	}
	return out.String()
}

// Completion asks, as a shell does, for each command and option.
func Completion(t *testing.T, root func() *cobra.Command) {
	cli.Each(root(), func(cmd *cobra.Command) {
		if hidden(cmd) {
			return
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		told := func(more ...string) string {
			return "\n" + Run(t, root(), slices.Concat([]string{cobra.ShellCompRequestCmd}, path, more)...)
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
			if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
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
}

// Help looks for each command under one head of the first help, and
// for what each option takes.
func Help(t *testing.T, root func() *cobra.Command) {
	cmd := root()
	for _, c := range cmd.Commands() {
		if !hidden(c) && c.GroupID == "" {
			t.Errorf("%s has no head", c.Name())
		}
	}
	cli.Each(cmd, func(c *cobra.Command) {
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
}

// Manual compares the pages with the command line, and lets groff read them where there is one. It
// returns that of the root.
func Manual(t *testing.T, root func() *cobra.Command) string {
	manual := pages(t, root)
	cli.Each(root(), func(cmd *cobra.Command) {
		page, ok := manual[strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"]
		if hidden(cmd) || cmd.Name() == "help" {
			if ok {
				t.Errorf("%s is hidden and has a page", cmd.CommandPath())
			}
			return
		}
		if !ok {
			t.Errorf("%s has no page", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && f.Name != "version" && !strings.Contains(page, `\fB--`+f.Name+`\fP`) {
				t.Errorf("%s: the page does not mention --%s", cmd.CommandPath(), f.Name)
			}
		})
	})
	for name, page := range pages(t, root) {
		if page != manual[name] {
			t.Errorf("%s is another each time, so packages would be, too", name)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return manual[root().Name()+".1"]
	}
	for name, page := range manual {
		cmd := exec.Command(groff, "-man", "-Tutf8", "-ww")
		cmd.Stdin = strings.NewReader(page)
		var faults strings.Builder
		cmd.Stderr = &faults
		if err := cmd.Run(); err != nil || faults.Len() > 0 {
			t.Errorf("%s: %v\n%s", name, err, &faults)
		}
	}
	return manual[root().Name()+".1"]
}

// pages writes the manual and returns its pages by the names of their files.
func pages(t *testing.T, root func() *cobra.Command) map[string]string {
	t.Helper()
	folder := t.TempDir()
	Run(t, root(), "man", folder)
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
