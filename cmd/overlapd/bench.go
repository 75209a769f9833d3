package main

import "github.com/spf13/cobra"

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what cutting costs, and put load on a running daemon",
	}
	cmd.AddCommand(benchEngineCommand(), benchServeCommand(), benchProbeCommand())
	return cmd
}
