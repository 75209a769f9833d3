package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
)

func predictorExportCommand() *cobra.Command {
	var state stateOptions
	var device string
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write the predictor of the state file, and what was measured for it",
		Long: `Export writes the newest predictor of a state file, and with it all that a daemon
with the same models on the same kind of device would have to measure: solo times,
how models are cut, and the measured groups. How well the predictor did of late is
left out, since that is about one machine. The file is for overlapd predictor
import, and for predictor.source of a configuration. A daemon may serve meanwhile.`,
		Example: `  overlapd predictor export a100.json --config overlapd.toml
  overlapd predictor export predictors/a100.json --state /var/lib/overlapd`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return state.open(reading, func(s *daemon.State) error {
				what, err := s.ExportPredictor(args[0], device)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s holds %s\n", args[0], what)
				}
				return err
			})
		},
	}
	state.flags(cmd)
	cmd.Flags().StringVar(&device, "device", "", "that the predictor is of, where there are several")
	return cmd
}

func predictorImportCommand() *cobra.Command {
	var state stateOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Take an exported predictor into the state file",
		Long: `Import takes the predictor of a file, and what was measured for it, into a state
file, so that the next daemon serves with it from its first query and measures only
what is missing. What was measured there already stays. With --config it is refused
unless it is of this device, and of these models with these threads; what differs is
said. A file that was changed since it was exported is refused as well. No daemon may
have the state file open meanwhile.`,
		Example: `  overlapd predictor import a100.json --config overlapd.toml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var c *config.Config
			if state.config != "" {
				read, err := config.Load(state.config)
				if err != nil {
					return err
				}
				c = &read
				state.dir = cmp.Or(state.dir, c.StateDir)
			}
			return state.open(making, func(s *daemon.State) error {
				what, err := s.ImportPredictor(args[0], c, daemonOptions(newLogger(config.Default(), os.Stderr)))
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "the state file has %s\n", what)
				}
				return err
			})
		},
	}
	state.flags(cmd)
	return cmd
}
