// Package data has the commands that make and move what a daemon predicts with, and show what it is made
// of: profile, train, dataset, predictor and models. All but models work on a state file.
package data

import (
	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
)

// Commands returns the commands.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		profileCommand(), trainCommand(),
		cli.Group("dataset", "Import, export and show measured operator groups",
			datasetImportCommand(), datasetExportCommand(), datasetShowCommand(), datasetDeleteCommand()),
		cli.Group("predictor", "Share a predictor and its measurements with other daemons", predictorExportCommand(), predictorImportCommand()),
		cli.Group("models", "List and build the zoo models, and show how a model is cut",
			modelsListCommand(), modelsBuildCommand(), modelsInspectCommand()),
	}
}
