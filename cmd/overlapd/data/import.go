package data

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/training"
)

// datasetImportCommand reads all files before it stores anything, since a folder with one broken file is
// a mistake that is easier to correct before half of it is in the state.
func datasetImportCommand() *cobra.Command {
	var state stateOptions
	var device string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "import PATH...",
		Short: "Store measured groups from CSV files in the state file",
		Long: `Import adds the rows of CSV files, or of all .csv files of folders, to the state file.
Use it to train on measurements from another machine or from the Abacus authors.

Rows that are already stored are skipped, so importing a file twice changes nothing.
If any file has a fault, nothing is stored. docs/dataset.md describes the format;
files of the original Abacus system are accepted unchanged.`,
		Example: `  overlapd dataset import pairs/ --device A100
  overlapd dataset import bert_resnet50.csv --state /var/lib/overlapd`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			d, err := training.ReadPath(paths...)
			if err != nil {
				return err
			}
			// The files do not name the device. What is measured here later is kept apart by it.
			d.Device = device
			return state.use(making, func(store *training.Store) error {
				done, err := importDataset(store, d)
				if err != nil {
					return err
				}
				return out.Print(cmd.OutOrStdout(), done, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s of %s read, %d stored; already stored: %d\n", report.Count(done.Rows, "row"), report.Count(len(done.Models), "model"), done.Rows-done.Known, done.Known)
					return err
				})
			})
		},
	}
	state.flags(cmd)
	cmd.Flags().StringVar(&device, "device", "", "device on which the groups were measured, in words")
	out.Flags(cmd.Flags())
	return cmd
}

// imported is the result of an import, with the models as the files have them. Of the Rows, Known were
// stored before.
type imported struct {
	Device string           `json:"device"`
	Models []training.Model `json:"models"`
	Rows   int              `json:"rows"`
	Known  int              `json:"known"`
}

// importDataset stores the rows that are not stored yet. An interrupt leaves whole rows
// behind, which the next import skips.
func importDataset(store *training.Store, d *training.Dataset) (imported, error) {
	// What was imported before may have had longer spans, of models that seemed to have more operators.
	anyCut := slices.Clone(d.Models)
	for i := range anyCut {
		anyCut[i].Operators = training.MaxOperators
	}
	stored, err := store.Dataset(d.Device, anyCut)
	if err != nil {
		return imported{}, err
	}
	// Rows that are there count once in a fit, so importing a file again must not double them.
	fresh := d.Without(stored)
	// Many rows take long to store.
	show, end := cli.Bar()
	defer end()
	for rows := fresh.Rows; len(rows) > 0; {
		// Some thousand rows are a transaction, which is fast, and leaves little to lose.
		n := min(2000, len(rows))
		if err := store.Append(&training.Dataset{Device: d.Device, Models: d.Models, Rows: rows[:n]}); err != nil {
			return imported{}, err
		}
		rows = rows[n:]
		show("importing", 1-float64(len(rows))/float64(len(fresh.Rows)))
	}
	return imported{Device: d.Device, Models: d.Models, Rows: len(d.Rows), Known: len(d.Rows) - len(fresh.Rows)}, nil
}
