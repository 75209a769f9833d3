package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func restartCommand() *cobra.Command {
	var at socketOptions
	cmd := &cobra.Command{
		Use:   "restart SERVICE",
		Short: "Try a service again that a daemon gave up",
		Long: `Restart has a running daemon try a service again that it gave up: one whose worker
was lost more often than worker.restart_limit allows, or for which a GPU had no
room. The log of the daemon says which it was. The others serve meanwhile.

To have a service that serves load its model anew, change the file and use
overlapd reload; to restart the daemon, systemctl restart.`,
		Example: `  overlapd restart resnet50
  overlapd restart resnet50 --config /etc/overlapd/0.toml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			if err := c.Restart(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is started again; overlapd status shows when it serves\n", args[0])
			return err
		},
	}
	at.flags(cmd)
	return cmd
}
