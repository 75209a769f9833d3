// Package watching has the commands that ask a running daemon, or read what it has logged, and change
// nothing: status, top, trace, replay and bench. They know a daemon as any client does, over HTTP.
package watching

import (
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
)

// Commands returns the commands.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		statusCommand(), topCommand(), traceCommand(), replayCommand(),
		cli.Group("bench", "Put load on a running daemon", benchServeCommand(), cli.ProbeCommand(), cli.MovedToLab("bench engine")),
	}
}
