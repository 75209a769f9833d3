package cli

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// ManCommand returns the hidden command that writes the manual pages, with more Markdown
// at the end of that of the root.
func ManCommand(more string) *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages to a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeManual(cmd.Root(), args[0], more)
		},
	}
}

// writeManual makes pages of the help.
func writeManual(root *cobra.Command, folder string, more string) error {
	Each(root, func(c *cobra.Command) {
		c.Long = asMarkdown(c.Long)
		c.DisableAutoGenTag = true
	})
	root.Long += more
	built, err := time.Parse(time.RFC3339, buildSetting("vcs.time"))
	if err != nil {
		built = time.Unix(0, 0).UTC() // the same for each build, so that the same commit gives the same pages
	}
	header := &doc.GenManHeader{Section: "1", Source: "overlapd " + Version, Manual: "User Commands", Date: &built}
	return doc.GenManTree(root, header, folder)
}

// asMarkdown makes code blocks of the lines of a help that are laid out in columns.
func asMarkdown(help string) string {
	var b strings.Builder
	fixed := false
	for line := range strings.Lines(help) {
		columns := strings.HasPrefix(line, "  ") || strings.Contains(strings.TrimSpace(line), "   ")
		if columns != fixed && strings.TrimSpace(line) != "" {
			b.WriteString("\n")
			fixed = columns
		}
		if columns {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String()
}
