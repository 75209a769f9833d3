package main

import "github.com/spf13/cobra"

func deviceCommand() *cobra.Command {
	return group("device", "Make a device of measurements, to simulate or to emulate", deviceFitCommand(), deviceShowCommand())
}
