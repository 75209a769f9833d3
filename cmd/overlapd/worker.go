package main

import (
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/segments"
)

// workerCommand is what the daemon starts for each service: the same binary,
// so that both ends of their protocol are of one version.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Hold one service's model and run its spans (started by the daemon)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return segments.RunWorker(segments.LoadONNX)
		},
	}
}
