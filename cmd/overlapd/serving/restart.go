package serving

import (
	"fmt"

	"github.com/spf13/cobra"
)

// restartCommand is apart from reload: no configuration is read, and what has failed for good is the
// only thing that it starts. A service that serves is never interrupted by it.
func restartCommand() *cobra.Command {
	var at socketOptions
	cmd := &cobra.Command{
		Use:   "restart SERVICE",
		Short: "Restart a service that failed permanently",
		Long: `Restart makes a running daemon start a service again that failed permanently: its worker
exited more often than worker.restart_limit allows, or a GPU had no memory left for it.
The daemon's log has the reason; fix it first. Other services keep serving.`,
		Example: `  overlapd restart resnet50
  overlapd restart resnet50 --config /etc/overlapd/0.toml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			// The daemon answers once it has begun: loading may take minutes, and may fail again.
			if err := c.Restart(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is restarting; overlapd status shows when it is ready\n", args[0])
			return err
		},
	}
	at.flags(cmd)
	return cmd
}
