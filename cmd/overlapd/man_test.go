package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestManualTellsAll compares the page with the command line.
func TestManualTellsAll(t *testing.T) {
	page := run(t, "man")
	sections := map[string]string{}
	for part := range strings.SplitSeq(page, "\n.SS ") {
		head, text, _ := strings.Cut(part, "\n")
		sections[head] = text
	}
	commands := 0
	eachCommand(root(), func(cmd *cobra.Command) {
		text, told := sections[quoted(cmd.UseLine())]
		if !cmd.IsAvailableCommand() || cmd.HasAvailableSubCommands() || hidden(cmd) {
			if told {
				t.Errorf("%s is hidden and in the page", cmd.CommandPath())
			}
			return
		}
		commands++
		if !told {
			t.Errorf("the page says nothing of %s", cmd.UseLine())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, roff("--"+f.Name)+`\fR`) {
				t.Errorf("%s: the page says nothing of --%s", cmd.CommandPath(), f.Name)
			}
		})
	})
	if commands < 10 {
		t.Errorf("only %d commands were compared", commands)
	}
	for _, section := range manualSections {
		if !strings.Contains(page, "\n.SH "+section.title+"\n") {
			t.Errorf("no section %s", section.title)
		}
	}
	if page != run(t, "man") {
		t.Error("the page is another each time, so packages would be, too")
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		"plain":       "plain",
		"--json":      `\-\-json`,
		`C:\n`:        `C:\en`,
		".5 of it":    `\&.5 of it`,
		"'quoted'":    `\&'quoted'`,
		"a\tb":        "a    b",
		"it. Is fine": "it. Is fine",
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := quoted(`say "x"`); got != `"say \(dqx\(dq"` {
		t.Errorf("got %s", got)
	}
}

func TestProse(t *testing.T) {
	var m manual
	m.prose("One\ntwo.\n\n  fixed  text\n  .more\n\nThree.\n")
	want := ".PP\nOne\ntwo.\n.PP\n.PP\n.nf\n  fixed  text\n  .more\n.fi\n.PP\nThree.\n"
	if m.String() != want {
		t.Errorf("got\n%s\nwant\n%s", m.String(), want)
	}
}

// TestManualIsRoff lets groff read the page, where there is one.
func TestManualIsRoff(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("no groff")
	}
	cmd := exec.Command(groff, "-man", "-Tutf8", "-ww")
	cmd.Stdin = strings.NewReader(run(t, "man"))
	var faults strings.Builder
	cmd.Stderr = &faults
	if err := cmd.Run(); err != nil || faults.Len() > 0 {
		t.Errorf("%v\n%s", err, &faults)
	}
}
