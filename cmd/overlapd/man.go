package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeManual(cmd.Root(), args[0])
		},
	}
}

// writeManual writes a page for each command, made of its help. The page of
// overlapd itself also holds what no command's help does.
func writeManual(root *cobra.Command, folder string) error {
	eachCommand(root, func(c *cobra.Command) {
		c.Long = asMarkdown(c.Long)
		c.DisableAutoGenTag = true
	})
	var b strings.Builder
	for _, s := range manualSections {
		fmt.Fprintf(&b, "\n\n# %s\n", s.title)
		for _, e := range s.entries {
			fmt.Fprintf(&b, "\n**%s**\n: %s\n", e.name, e.text)
		}
	}
	root.Long += b.String()
	built := buildTime()
	header := &doc.GenManHeader{Section: "1", Source: "overlapd " + version, Manual: "User Commands", Date: &built}
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

// buildTime returns the time of the commit that was built, so that the same commit gives
// the same pages.
func buildTime() time.Time {
	if at, err := time.Parse(time.RFC3339, buildSetting("vcs.time")); err == nil {
		return at
	}
	return time.Unix(0, 0).UTC()
}

// manualSections complete the help of the commands to the manual.
var manualSections = []struct {
	title   string
	entries []struct{ name, text string }
}{
	{
		title: "FILES",
		entries: []struct{ name, text string }{
			{"/etc/overlapd/INSTANCE.toml", "The configuration of overlapd@INSTANCE.service. What its keys mean is in /usr/share/doc/overlapd/configuration.md."},
			{"/etc/default/overlapd", "Environment variables and further options of every instance."},
			{"/var/lib/overlapd/INSTANCE", "The state: what was measured, the predictors, the decision log."},
			{"/var/cache/overlapd/INSTANCE", "Models that were built or cut, which are built again if they are missing."},
			{"/run/overlapd/INSTANCE", "Sockets, and those of MPS, while it runs."},
			{"/run/overlapd/INSTANCE/admin.sock", "The admin socket, for root, the user overlapd and the members of admin_group."},
			{"/usr/lib/overlapd/libonnxruntime.so.1", "ONNX Runtime, for overlapd alone."},
		},
	},
	{
		title: "ENVIRONMENT",
		entries: []struct{ name, text string }{
			{"OVERLAPD_ORT", "The ONNX Runtime to load, before any other place."},
			{"OVERLAPD_TOKEN_FILE", "A file whose first token status, top, trace and bench serve present, unless --token-file names another."},
			{"NO_COLOR", "If it is not empty, top shows no colours."},
			{"STATE_DIRECTORY", "The state folder, unless the configuration names one. systemd sets it. Else it is overlapd below XDG_STATE_HOME or ~/.local/state."},
			{"CACHE_DIRECTORY", "The folder of what can be built again. systemd sets it. Else it is overlapd below XDG_CACHE_HOME or ~/.cache; a daemon takes its state folder instead."},
			{"RUNTIME_DIRECTORY", "The folder of sockets. systemd sets it. Else the admin socket is in overlapd below XDG_RUNTIME_DIR, or in the state folder."},
			{"NOTIFY_SOCKET, WATCHDOG_USEC", "Where the daemon reports its state, and how often systemd wants a sign of life."},
		},
	},
	{
		title: "SIGNALS",
		entries: []struct{ name, text string }{
			{"SIGTERM, SIGINT", "Accept nothing more, answer what was accepted, and end. A second one ends at once."},
			{"SIGHUP", "Read the configuration again, as overlapd reload has the daemon do. The log says what became of it. If it comes of a terminal that is gone, the daemon ends as with SIGTERM."},
		},
	},
	{
		title: "EXIT STATUS",
		entries: []struct{ name, text string }{
			{"0", "All went well."},
			{"1", "Something failed; standard error says what."},
			{"78", "The configuration is wrong. systemd does not start the daemon again then. Of overlapd reload: nothing was changed."},
		},
	},
}
