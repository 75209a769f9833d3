package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/worker"
)

// workerCommand is what the daemon starts for each service: the same binary,
// so that both ends of their protocol are of one version.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Hold one service's model and run its spans (started by the daemon)",
		Hidden: true,
		Args:   cobra.NoArgs,
		Long: `A worker is started by the daemon, which hands it a socket and shared memory. It
is of no use by hand: run overlapd serve.`,
		RunE: func(*cobra.Command, []string) error {
			err := worker.Run(segments.LoadONNX)
			if errors.Is(err, worker.ErrLoadFailed) {
				return errReported // by the daemon, which was told
			}
			return err
		},
	}
}

// checkStateName is the command that checks the state file for whoever opens it.
const checkStateName = "check-state"

func checkStateCommand() *cobra.Command {
	return &cobra.Command{
		Use:    checkStateName,
		Short:  "Check the state file (started by whoever opens it)",
		Hidden: true,
		Args:   cobra.NoArgs,
		Long: `The state file is checked in a process of its own before it is opened, so that no
damage to it ends the daemon. It is handed over open: this command is of no use by
hand.`,
		Run: func(*cobra.Command, []string) { statefile.RunCheck() },
	}
}
