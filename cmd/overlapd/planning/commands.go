// Package planning has the commands that say what should run where: advise, from measured groups of
// operators, and plan, from the times of whole models. The packages planning and training/advice decide.
// This one reads their inputs from files and configurations, and shows their results as text and pages.
package planning

import (
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
)

// Commands returns the commands.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		adviseCommand(),
		cli.Group("plan", "Plan which models go on which devices, and which variant answers", planPlacementCommand(), planPipelineCommand(), planSelectionCommand()),
	}
}
