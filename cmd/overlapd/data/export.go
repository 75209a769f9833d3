package data

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/training"
)

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

// exportOptions are the flags of export. Where out leads decides how many files there are.
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
