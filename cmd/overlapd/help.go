package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/watching"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/overlap"
)

// completions are those of the values of flags, which mean the same in every command that has them.
func completions() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"config":   cli.Files("toml"),
		"admin":    cli.Files("sock"),
		"arrivals": cli.Words("poisson", "constant", "gamma"),
		"explain":  completeKeys,
		"format":   cli.Words("abacus"),
		"in-force": cli.Files("json"),
		// Not the policies for comparison, which the daemon does not accept.
		"policy":    cli.Words(policyNames()...),
		"predictor": cli.Files("json"),
		"recipe":    cli.Words("overlapd", "paper"),
		// A running daemon is asked for these, so that they can be completed without a configuration.
		"service": watching.CompleteServices,
		"split":   cli.Words("random", "grouped", "kfold"),
	}
}

// policyNames returns the policies that a daemon may have. Flags show them in the order in which the
// scheduler lists them.
func policyNames() (names []string) {
	for _, p := range overlap.Policies() {
		names = append(names, p.Name)
	}
	return names
}

// completeKeys offers the keys of a configuration, of which nobody remembers all.
func completeKeys(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	// Without a name all keys are explained, and nothing can be wrong.
	all, _ := config.Explain("", nil)
	for i := range all {
		names = append(names, all[i].Key)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// manual returns the sections as Markdown, from which the page of the root is made.
func manual() string {
	var b strings.Builder
	for _, s := range manualSections {
		fmt.Fprintf(&b, "\n\n# %s\n", s.title)
		for _, e := range s.entries {
			fmt.Fprintf(&b, "\n**%s**\n: %s\n", e[0], e[1])
		}
	}
	return b.String()
}

// manualSections complete the help of the commands to the manual: what is of the program and of no
// command. It is not in the help of the root, which should fit on a screen.
var manualSections = []struct {
	title   string
	entries [][2]string
}{
	{"FILES", [][2]string{
		{"/etc/overlapd/INSTANCE.toml", "The configuration of overlapd@INSTANCE.service. /usr/share/doc/overlapd/configuration.md describes its keys."},
		{"/etc/default/overlapd", "Environment variables and further options of every instance."},
		{"/var/lib/overlapd/INSTANCE", "The state: measurements, predictors and the decision log."},
		{"/var/cache/overlapd/INSTANCE", "Models that were built or cut. They are built again if they are missing."},
		{"/run/overlapd/INSTANCE", "Sockets of the running daemon and of MPS."},
		{"/run/overlapd/INSTANCE/admin.sock", "The admin socket, for root, the user overlapd and the members of admin_group."},
		{"/usr/lib/overlapd/libonnxruntime.so.1", "ONNX Runtime, used by overlapd only."},
	}},
	{"ENVIRONMENT", [][2]string{
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
	{"SIGNALS", [][2]string{
		{"SIGTERM, SIGINT", "Stop accepting queries, answer those accepted, and exit. A second signal quits immediately."},
		{"SIGHUP", "Reload the configuration file, as overlapd reload does. The log reports the result. If the signal comes from a closed terminal, the daemon stops as on SIGTERM."},
	}},
	{"EXIT STATUS", [][2]string{
		{"0", "Success."},
		{"1", "Failure; standard error has the reason."},
		{"78", "The configuration is invalid. systemd does not restart the daemon. After overlapd reload: nothing was changed."},
	}},
}
