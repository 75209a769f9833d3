package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models/zoo"
)

// completeValues adds completions for the values of options, which mean the same in
// every command that has them, and for the arguments of commands.
func completeValues(root *cobra.Command) error {
	zooModels := cobra.FixedCompletions(zoo.Names(), cobra.ShellCompDirectiveDefault)
	values := map[string]cobra.CompletionFunc{
		"config":    files("toml"),
		"admin":     files("sock"),
		"arrivals":  words("poisson", "constant", "gamma"),
		"dispatch":  words("round-robin", "random", "least-loaded", "pool", "split"),
		"explain":   completeKeys,
		"format":    words("abacus"),
		"in-force":  files("json"),
		"knows":     words("all", "order", "nothing"),
		"predictor": files("json"),
		"recipe":    words("overlapd", "paper"),
		"scenario":  files("json"),
		"service":   completeServices,
		"split": func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			splits := []string{"random", "grouped"}
			if cmd.Name() == "train" {
				splits = append(splits, "kfold")
			}
			return splits, cobra.ShellCompDirectiveNoFileComp
		},
		"policy": func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			names, comparing := policyNames()
			if cmd.Name() == "simulate" {
				names = append(names, comparing...)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		"model": zooModels,
	}
	var fault error
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if complete := values[f.Name]; complete != nil {
				fault = errors.Join(fault, cmd.RegisterFlagCompletionFunc(f.Name, complete))
			}
		})
		switch cmd.CommandPath() {
		case "overlapd check":
			cmd.ValidArgsFunction = files("toml")
		case "overlapd models build":
			cmd.ValidArgsFunction = words(zoo.Names()...)
		case "overlapd models inspect":
			cmd.ValidArgsFunction = zooModels
		case "overlapd device show", "overlapd predictor export", "overlapd predictor import":
			cmd.ValidArgsFunction = files("json")
		case "overlapd restart":
			cmd.ValidArgsFunction = completeServices
		default:
			if cmd.Args != nil && cmd.Args(cmd, []string{"any"}) != nil {
				cmd.ValidArgsFunction = cobra.NoFileCompletions
			}
		}
	})
	return fault
}

func words(list ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// completeServices offers the services of the configuration that the command line
// names, else those of the daemon that the command would ask.
func completeServices(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if path := cmd.Flag("config").Value.String(); path != "" {
		if c, err := config.Load(path); err == nil {
			return c.Names(), cobra.ShellCompDirectiveNoFileComp
		}
	}
	var at target
	asks := new(cobra.Command)
	at.flags(asks)
	cmd.Flags().Visit(func(f *pflag.Flag) { _ = asks.Flags().Set(f.Name, f.Value.String()) }) // flags of others are unknown
	var names []string
	var s status.Status
	if at.open() == nil && at.ask("/overlapd/status", "", "status", &s, func() bool { return true }) == nil {
		for i := range s.Services {
			names = append(names, s.Services[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeKeys offers the keys of a configuration.
func completeKeys(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	all, _ := config.Explain("", nil) // which are known
	for i := range all {
		names = append(names, all[i].Key)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func files(ending string) cobra.CompletionFunc {
	return cobra.FixedCompletions([]string{ending}, cobra.ShellCompDirectiveFilterFileExt)
}

func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, visit)
	}
}

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages to a folder",
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

// writeManual makes pages of the help. That of overlapd has manualSections, too.
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
	built, err := time.Parse(time.RFC3339, buildSetting("vcs.time"))
	if err != nil {
		built = time.Unix(0, 0).UTC() // the same for each build, so that the same commit gives the same pages
	}
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

// manualSections complete the help of the commands to the manual.
var manualSections = []struct {
	title   string
	entries []manualEntry
}{
	{"FILES", []manualEntry{
		{"/etc/overlapd/INSTANCE.toml", "The configuration of overlapd@INSTANCE.service. /usr/share/doc/overlapd/configuration.md describes its keys."},
		{"/etc/default/overlapd", "Environment variables and further options of every instance."},
		{"/var/lib/overlapd/INSTANCE", "The state: measurements, predictors and the decision log."},
		{"/var/cache/overlapd/INSTANCE", "Models that were built or cut. They are built again if they are missing."},
		{"/run/overlapd/INSTANCE", "Sockets of the running daemon and of MPS."},
		{"/run/overlapd/INSTANCE/admin.sock", "The admin socket, for root, the user overlapd and the members of admin_group."},
		{"/usr/lib/overlapd/libonnxruntime.so.1", "ONNX Runtime, used by overlapd only."},
	}},
	{"ENVIRONMENT", []manualEntry{
		{"OVERLAPD_ORT", "The ONNX Runtime to load. It takes precedence over all other places."},
		{"OVERLAPD_SOLVER", "The HiGHS or CBC program that plan runs, or none. It takes precedence over PATH."},
		{"OVERLAPD_URL", "The daemon that status, top, trace and bench serve connect to, unless --url or --config names another."},
		{"OVERLAPD_TOKEN_FILE", "A file whose first token status, top, trace and bench serve send, unless --token-file names another."},
		{"NO_COLOR", "If set and not empty, top and the log on a terminal use no colours."},
		{"STATE_DIRECTORY", "The state folder, unless the configuration names one. systemd sets it. The default is overlapd below XDG_STATE_HOME or ~/.local/state."},
		{"CACHE_DIRECTORY", "The folder of files that can be built again. systemd sets it. The default is overlapd below XDG_CACHE_HOME or ~/.cache; for a daemon, its state folder."},
		{"RUNTIME_DIRECTORY", "The folder of sockets. systemd sets it. The default of the admin socket is overlapd below XDG_RUNTIME_DIR, or else the state folder."},
		{"NOTIFY_SOCKET, WATCHDOG_USEC", "Where the daemon reports its state, and how often systemd expects a watchdog notification."},
	}},
	{"SIGNALS", []manualEntry{
		{"SIGTERM, SIGINT", "Stop accepting queries, answer those accepted, and exit. A second signal quits immediately."},
		{"SIGHUP", "Reload the configuration file, as overlapd reload does. The log reports the result. If the signal comes from a closed terminal, the daemon stops as on SIGTERM."},
	}},
	{"EXIT STATUS", []manualEntry{
		{"0", "Success."},
		{"1", "Failure; standard error has the reason."},
		{"78", "The configuration is invalid. systemd does not restart the daemon. After overlapd reload: nothing was changed."},
	}},
}

type manualEntry struct{ name, text string }
