package data

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	// Storing many rows takes a while.
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

// datasetExportCommand writes the format that import reads, so that measurements can be moved, and
// looked at with other tools on the way.
func datasetExportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the measured groups of the state file as CSV",
		Long: `Export writes measured groups as CSV: one file for each set of models in a folder, or
one file if --out ends in .csv, or standard output if --out is "-". Use it to move
measurements to another machine or to look at them with other tools. Existing files
are not overwritten. docs/dataset.md describes the format.`,
		Example: `  overlapd dataset export --out measured/
  overlapd dataset export --out - --models bert,resnet50`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.state.use(reading, func(store *training.Store) error { return o.export(store, cmd.OutOrStdout()) })
		},
	}
	o.state.flags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.out, "out", "o", "", "folder, created if needed; or a file that ends in .csv; or - for standard output")
	f.StringVar(&o.device, "device", "", "export only groups measured on this device")
	f.StringSliceVar(&o.models, "models", nil, "export only groups of these models")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

// exportOptions are the flags of export. The form of out decides how many files there are.
type exportOptions struct {
	state stateOptions
	// out is a folder, a file that ends in .csv, or "-" for standard output.
	out string
	// device and models choose the sets: those that have no other models.
	device string
	models []string
}

// export writes the sets that are chosen, to one file or to a file each, whose paths it prints.
func (o *exportOptions) export(store *training.Store, stdout io.Writer) error {
	// Nothing to export is an error: a script would go on with an empty folder.
	sets, err := chooseSets(store, o.device, o.models)
	if err != nil {
		return err
	}
	if o.out == "-" || strings.EqualFold(filepath.Ext(o.out), ".csv") {
		return exportTo(o.out, store, sets, stdout)
	}
	// A folder that is there may have files of other exports, which keep their names.
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for i := range sets {
		path := filepath.Join(o.out, exportName(sets, i))
		if err := exportTo(path, store, sets[i:i+1], stdout); err != nil {
			return err
		}
		fmt.Fprintln(stdout, path)
	}
	return nil
}

// exportTo writes sets of one device together, as a file does not name it. It never replaces a file: what
// was measured on a machine that is gone cannot be measured again.
func exportTo(path string, store *training.Store, sets []training.Summary, stdout io.Writer) error {
	parts := make([]*training.Dataset, len(sets))
	for i, set := range sets {
		if set.Device != sets[0].Device {
			return fmt.Errorf("groups of %s and of %s cannot share a file; name one with --device", cmp.Or(sets[0].Device, "unknown"), cmp.Or(set.Device, "unknown"))
		}
		var err error
		if parts[i], err = store.Set(set.ID); err != nil {
			return err
		}
	}
	// In one file a model has one number, in each set its own.
	d, err := training.Merge(parts...)
	if err != nil {
		return err
	}
	if path == "-" {
		return training.WriteCSV(stdout, d)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s already exists; remove it or choose another --out", path)
	}
	if err != nil {
		return err
	}
	// Half a file would be taken for a whole one by the next import.
	if err := errors.Join(training.WriteCSV(file, d), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// exportName names a file by the models of the set, and its ID if others have the same: sets differ by
// device and by the versions of models, too, which would make names long. Case does not count, since on
// some file systems it does not.
func exportName(sets []training.Summary, i int) string {
	base := fileName(&sets[i])
	for j := range sets {
		if j != i && strings.EqualFold(fileName(&sets[j]), base) {
			return base + "-" + sets[i].ID + ".csv"
		}
	}
	return base + ".csv"
}

// fileName joins the names of the models, made fit for a file system.
func fileName(s *training.Summary) string {
	// Most file systems take 255 bytes, and the ID and the ending come after it.
	const longest = 200
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) {
			return '-'
		}
		return r
	}, strings.ReplaceAll(s.Name(), " + ", "_"))
	// A file that begins with a dot is hidden.
	if name = strings.TrimLeft(name, "."); name == "" || len(name) > longest {
		return s.ID
	}
	return name
}

// datasetShowCommand shows the IDs that delete takes, and the devices that export and train take.
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
