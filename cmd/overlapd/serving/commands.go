// Package serving has the commands that run a daemon and change it while it runs: serve, check, import,
// reload, restart, drain, and those that the daemon starts as its children. Other commands make
// daemons as serve does, by [NewDaemon].
package serving

import (
	"github.com/spf13/cobra"
)

// Commands returns the commands, of which those that only a daemon starts are hidden.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		serveCommand(), checkCommand(), importCommand(), reloadCommand(), restartCommand(), drainCommand(),
		workerCommand(), checkStateCommand(), fitCommand(),
	}
}
