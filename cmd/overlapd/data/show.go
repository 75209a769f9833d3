package data

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/training"
)

// datasetShowCommand shows by which IDs delete knows the sets, and which devices export and train may ask
// for.
func datasetShowCommand() *cobra.Command {
	var state stateOptions
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show measured groups and trained predictors",
		Example: `  overlapd dataset show
  overlapd dataset show --config overlapd.toml --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return state.use(reading, func(store *training.Store) error {
				shown, err := showStore(store)
				if err != nil {
					return err
				}
				return out.Print(cmd.OutOrStdout(), shown, shown.writeText)
			})
		},
	}
	state.flags(cmd)
	out.Flags(cmd.Flags())
	return cmd
}

// shown is what a state file has for training, the newest predictor first.
type shown struct {
	Rows       int                `json:"rows"`
	Sets       []training.Summary `json:"sets"`
	Predictors []shownPredictor   `json:"predictors"`
}

// shownPredictor sums up a predictor file, whose weights are of no use to a reader. Its error is in percent,
// of rows that it was not trained on.
type shownPredictor struct {
	Created  time.Time `json:"created"`
	Device   string    `json:"device"`
	Recipe   string    `json:"recipe"`
	Models   []string  `json:"models"`
	Rows     int       `json:"rows"`
	MAPETest float64   `json:"mape_test"`
}

// showStore sums up what a state file has. Lists are never null in the JSON.
func showStore(store *training.Store) (shown, error) {
	s := shown{Sets: []training.Summary{}, Predictors: []shownPredictor{}}
	sets, err := store.List()
	if err != nil {
		return s, err
	}
	s.Sets = append(s.Sets, sets...)
	for _, set := range sets {
		s.Rows += set.Rows
	}
	// Old predictors stay in the file until there are too many, so that one can compare their errors.
	files, err := store.Predictors()
	for _, f := range files {
		p := shownPredictor{Created: f.Created, Device: f.Device, Recipe: f.Recipe, Rows: f.Rows, MAPETest: f.Test.MAPE}
		for _, m := range f.Features.Models {
			p.Models = append(p.Models, m.Name)
		}
		s.Predictors = append(s.Predictors, p)
	}
	return s, err
}

// writeText writes a table of sets and one of predictors.
func (s shown) writeText(w io.Writer) error {
	var d report.Document
	// Share is how much of a latency the device worked, and Spread how far runs of one group differ: both
	// say whether the measurements are to be trusted.
	t := report.NewTable("SET", "DEVICE", "MODELS", "ROWS", "BATCH SIZES", "SEQUENCES", "MEDIAN", "ON DEVICE", "SPREAD")
	for _, set := range s.Sets {
		took := time.Duration(set.Median * float64(time.Microsecond)).Round(time.Microsecond)
		t.Rowf("%s\t%s\t%s\t%d\t%s\t%s\t%v\t%s\t%.1f %%", set.ID, cmp.Or(set.Device, "unknown"), set.Name(), set.Rows,
			report.Numbers(set.Sizes), report.Numbers(set.SeqLens), took, report.OrDash("%.1f %%", 100*set.Share), 100*set.Spread)
	}
	// The last row is the sum, as far as there is one.
	t.Rowf("\t\t%s\t%d", report.Count(len(s.Sets), "set"), s.Rows)
	d.Table(t)
	t = report.NewTable("PREDICTOR", "DEVICE", "MODELS", "ROWS", "RECIPE", "ERROR")
	for _, p := range s.Predictors {
		t.Rowf("%s\t%s\t%s\t%d\t%s\t%.1f %%", p.Created.UTC().Format(time.DateTime), cmp.Or(p.Device, "unknown"),
			strings.Join(p.Models, ", "), p.Rows, p.Recipe, p.MAPETest)
	}
	d.Table(t)
	return d.WriteText(w)
}

// datasetDeleteCommand deletes sets by their IDs only. Names of models would be shorter, and more would be
// gone than was meant.
func datasetDeleteCommand() *cobra.Command {
	var state stateOptions
	cmd := &cobra.Command{
		Use:   "delete SET...",
		Short: "Delete sets of measured groups",
		Long: `Delete removes all rows of the given sets from the state file; dataset show lists the
sets. Exported files are not touched.`,
		Example: `  overlapd dataset delete 0a1b2c3d4e5f`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return state.use(changing, func(store *training.Store) error {
				// Each is a transaction: what was deleted before a fault stays so.
				for _, id := range ids {
					if err := store.Delete(id); err != nil {
						return fmt.Errorf("%w; see overlapd dataset show", err)
					}
				}
				return nil
			})
		},
	}
	state.flags(cmd)
	return cmd
}
