package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Print the manual page",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m := &manual{}
			m.page(cmd.Root())
			_, err := io.WriteString(cmd.OutOrStdout(), m.String())
			return err
		},
	}
}

// manual writes a page of man(7) out of the commands' own help, so that it
// cannot say anything else.
type manual struct{ strings.Builder }

func (m *manual) page(root *cobra.Command) {
	m.line(`.TH OVERLAPD 1 "" "overlapd ` + version + `" "User Commands"`)
	m.section("NAME")
	m.line("overlapd \\- " + roff(uncapital(root.Short)))
	m.section("SYNOPSIS")
	m.line(".B overlapd")
	m.line(".I command")
	m.line("[\\fIoption\\fR...]")
	m.section("DESCRIPTION")
	m.prose(root.Long)
	m.section("COMMANDS")
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.Runnable() && !hidden(cmd) && cmd != root && !cmd.HasAvailableSubCommands() {
			m.command(cmd)
		}
	})
	for _, s := range manualSections {
		m.section(s.title)
		if s.text != "" {
			m.prose(s.text)
		}
		for _, e := range s.entries {
			m.entry(roff(e.name), e.text)
		}
	}
}

// hidden reports whether people are not told of a command, or of one that it
// belongs to.
func hidden(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		if cmd.Hidden {
			return true
		}
	}
	return false
}

func (m *manual) command(cmd *cobra.Command) {
	m.line(".SS " + quoted(cmd.UseLine()))
	if cmd.Long != "" {
		m.prose(cmd.Long)
	} else {
		m.prose(cmd.Short + ".")
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			m.entry(flagHead(f), flagText(f))
		}
	})
	if cmd.Example != "" {
		m.line(".PP")
		m.line("Examples:")
		m.verbatim(cmd.Example)
	}
}

// flagHead returns an option as one types it.
func flagHead(f *pflag.Flag) string {
	head := `\fB` + roff("--"+f.Name) + `\fR`
	if f.Shorthand != "" {
		head = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + head
	}
	if value, _ := pflag.UnquoteUsage(f); value != "" {
		head += ` \fI` + roff(value) + `\fR`
	}
	return head
}

func flagText(f *pflag.Flag) string {
	_, text := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
		return text
	}
	return fmt.Sprintf("%s (default %s)", text, f.DefValue)
}

func (m *manual) line(text string) { m.WriteString(text + "\n") }

func (m *manual) section(title string) { m.line(".SH " + title) }

func (m *manual) entry(head, text string) {
	m.line(".TP")
	m.line(head)
	m.line(roff(text))
}

// prose writes the text of a help: lines that are indented stay as they are,
// others flow together.
func (m *manual) prose(text string) {
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var flowing, fixed []string
		for line := range strings.SplitSeq(block, "\n") {
			if strings.HasPrefix(line, "  ") || len(fixed) > 0 || strings.Contains(strings.TrimSpace(line), "   ") {
				fixed = append(fixed, line)
			} else {
				flowing = append(flowing, line)
			}
		}
		m.line(".PP")
		for _, line := range flowing {
			m.line(roff(line))
		}
		if len(fixed) > 0 {
			m.verbatim(strings.Join(fixed, "\n"))
		}
	}
}

func (m *manual) verbatim(text string) {
	m.line(".PP")
	m.line(".nf")
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		m.line(roff(line))
	}
	m.line(".fi")
}

// roff returns text that stands for itself in a manual page.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\t", "    ").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// quoted returns text as one argument of a macro.
func quoted(text string) string {
	return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"`
}

func uncapital(text string) string { return strings.ToLower(text[:1]) + text[1:] }
