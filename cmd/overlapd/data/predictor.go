package data

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
)

// predictorExportCommand makes a file of what a machine has measured, for machines of the same kind. A
// predictor is of no use there without the isolated latencies and cuts that it was trained with, so the
// file has both.
func predictorExportCommand() *cobra.Command {
	var state stateOptions
	var device string
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write the predictor of the state file and its measurements",
		Long: `Export writes the newest predictor of a state file, and everything that a daemon with
the same models on the same kind of device would have to measure: isolated latencies,
cuts and measured groups. Use it to give new machines a predictor from their first
query. The recent accuracy of the predictor is left out, because it belongs to one
machine. The file is for overlapd predictor import, and for predictor.source of a
configuration. A daemon may run meanwhile.`,
		Example: `  overlapd predictor export a100.json --config overlapd.toml
  overlapd predictor export predictors/a100.json --state /var/lib/overlapd`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// A daemon may go on: what it stores meanwhile is in the next export.
			return state.open(reading, func(s *daemon.State) error {
				// What the file holds is printed, so that a wrong state folder is noticed here.
				what, err := s.ExportPredictor(args[0], device)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s holds %s\n", args[0], what)
				}
				return err
			})
		},
	}
	state.flags(cmd)
	cmd.Flags().StringVar(&device, "device", "", "device of the predictor, if there are several")
	return cmd
}

// predictorImportCommand checks a file against a configuration, if there is one, because a predictor for
// other models or threads would be stored and never used, and nobody would notice.
func predictorImportCommand() *cobra.Command {
	var state stateOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Store an exported predictor in the state file",
		Long: `Import stores the predictor of a file and its measurements in a state file. The next
daemon uses it from its first query and measures only what is missing. Existing
measurements are kept.

With --config the file must match this device, the models and the thread counts; the
error names what differs. Files that were changed after their export are rejected. No
daemon may have the state file open meanwhile.`,
		Example: `  overlapd predictor import a100.json --config overlapd.toml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// --state may name another folder than the configuration, for a daemon that is set up later.
			var c *config.Config
			if state.config != "" {
				read, err := config.Load(state.config)
				if err != nil {
					return err
				}
				// The check needs the configuration, and the state file only its folder.
				c = &read
				state.dir = cmp.Or(state.dir, c.StateDir)
			}
			// Whether the file fits depends on what a daemon would be on this host.
			return state.open(making, func(s *daemon.State) error {
				what, err := s.ImportPredictor(args[0], c, serving.DaemonOptions(serving.NewLogger(config.Default(), os.Stderr)))
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "stored %s in the state file\n", what)
				}
				return err
			})
		},
	}
	state.flags(cmd)
	return cmd
}
