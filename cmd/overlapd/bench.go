package main

import "github.com/spf13/cobra"

func benchCommand() *cobra.Command {
	return group("bench", "Measure what cutting costs, and put load on a running daemon",
		benchEngineCommand(), benchServeCommand(), benchProbeCommand())
}
