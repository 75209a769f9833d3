package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/training"
)

// importRows is how many rows are stored at once.
const importRows = 2000

func datasetCommand() *cobra.Command {
	return group("dataset", "Import, export and show measured operator groups",
		datasetImportCommand(), datasetExportCommand(), datasetShowCommand(), datasetDeleteCommand())
}

// stateOptions says which state file a command works on.
type stateOptions struct {
	dir    string
	config string
}

func (o *stateOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dir, "state", "", "state folder, instead of the configuration's or the usual one")
	cmd.Flags().StringVarP(&o.config, "config", "c", "", "configuration file that names the state folder")
}

func (o *stateOptions) folder() (string, error) {
	switch {
	case o.dir != "":
		return o.dir, nil
	case o.config == "":
		return config.Default().StateDir, nil
	}
	c, err := config.Load(o.config)
	return c.StateDir, err
}

// open opens the state file while no daemon has it.
func (o *stateOptions) open(mustExist bool) (*daemon.State, error) {
	dir, err := o.folder()
	if err != nil {
		return nil, err
	}
	return daemon.OpenState(dir, mustExist)
}

func datasetImportCommand() *cobra.Command {
	var state stateOptions
	var device string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import PATH...",
		Short: "Put measured groups of CSV files into the state file",
		Long: `Import reads CSV files, or all .csv files of folders, and stores their rows with
those of the same device and models. Rows that were imported before are left
out, so that importing a file twice changes nothing. Nothing is stored if any file
has a fault. The form is in docs/dataset.md; files of the original system are
taken as they are.`,
		Example: `  overlapd dataset import pairs/ --device A100
  overlapd dataset import bert_resnet50.csv --state /var/lib/overlapd`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) (err error) {
			d, err := readDatasets(paths)
			if err != nil {
				return err
			}
			d.Device = device
			file, err := state.open(false)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			done, err := importDataset(file.Datasets(), d)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), done)
			}
			return done.writeText(cmd.OutOrStdout())
		},
	}
	state.flags(cmd)
	cmd.Flags().StringVar(&device, "device", "", "what the groups were measured on, in words")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func readDatasets(paths []string) (*training.Dataset, error) {
	parts := make([]*training.Dataset, len(paths))
	for i, path := range paths {
		var err error
		if parts[i], err = training.ReadPath(path); err != nil {
			return nil, err
		}
	}
	return training.Merge(parts...)
}

// imported is what an import did.
type imported struct {
	Device string           `json:"device"`
	Models []training.Model `json:"models"`
	Rows   int              `json:"rows"`  // that were read
	Known  int              `json:"known"` // that were stored before
}

func (i imported) writeText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d rows of %d models read, %d stored; %d were stored before\n", i.Rows, len(i.Models), i.Rows-i.Known, i.Known)
	return err
}

// importDataset stores what is new. An interrupt leaves whole rows behind,
// which the next import leaves out.
func importDataset(store *training.Store, d *training.Dataset) (imported, error) {
	stored, err := store.Dataset(d.Device, anyCut(d.Models))
	if err != nil {
		return imported{}, err
	}
	fresh := d.Without(stored)
	bar := newRowBar("importing", len(fresh.Rows))
	defer func() { _ = bar.Exit() }() // the bar is for looks
	for rows := fresh.Rows; len(rows) > 0; {
		n := min(importRows, len(rows))
		if err := store.Append(&training.Dataset{Device: d.Device, Models: d.Models, Rows: rows[:n]}); err != nil {
			return imported{}, err
		}
		_ = bar.Add(n)
		rows = rows[n:]
	}
	return imported{Device: d.Device, Models: d.Models, Rows: len(d.Rows), Known: len(d.Rows) - len(fresh.Rows)}, nil
}

// anyCut returns the models with as many operators as any: what was imported
// before may have had longer spans.
func anyCut(list []training.Model) []training.Model {
	list = slices.Clone(list)
	for i := range list {
		list[i].Operators = training.MaxOperators
	}
	return list
}

// newRowBar returns a progress bar that counts rows on stderr, silent unless
// that is a terminal.
func newRowBar(what string, rows int) *progressbar.ProgressBar {
	to := io.Discard
	if term.IsTerminal(int(os.Stderr.Fd())) {
		to = os.Stderr
	}
	return progressbar.NewOptions(rows,
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(to),
		progressbar.OptionShowCount(),
		progressbar.OptionSetItsString("rows"),
		progressbar.OptionClearOnFinish(),
	)
}

func datasetDeleteCommand() *cobra.Command {
	var state stateOptions
	cmd := &cobra.Command{
		Use:     "delete SET...",
		Short:   "Forget sets of measured groups",
		Long:    `Delete forgets all rows of sets, which dataset show names. What is exported stays.`,
		Example: `  overlapd dataset delete 0a1b2c3d4e5f`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) (err error) {
			file, err := state.open(true)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			for _, id := range ids {
				if err := file.Datasets().Delete(training.SetID(id)); err != nil {
					return fmt.Errorf("%w; see overlapd dataset show", err)
				}
			}
			return nil
		},
	}
	state.flags(cmd)
	return cmd
}
