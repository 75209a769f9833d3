package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/training"
)

func datasetExportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write measured groups of the state file as CSV",
		Long: `Export writes one CSV file for each set of models into a folder, or all rows
into one file if --out ends in .csv, or to standard output if it is "-". Files
that are there already are not overwritten. The form is in docs/dataset.md.`,
		Example: `  overlapd dataset export --out measured/
  overlapd dataset export --out - --models bert,resnet50`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			file, err := o.state.open(true)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			return o.export(file.Datasets(), cmd.OutOrStdout())
		},
	}
	o.state.flags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.out, "out", "o", "", "folder, made if it is not there; or a file that ends in .csv; or - for standard output")
	f.StringVar(&o.device, "device", "", "only what was measured on this device")
	f.StringSliceVar(&o.models, "models", nil, "only groups of these models")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

// exportOptions says what is written where.
type exportOptions struct {
	state  stateOptions
	out    string
	device string
	models []string
}

func (o *exportOptions) export(store *training.Store, stdout io.Writer) error {
	sets, err := o.choose(store)
	if err != nil {
		return err
	}
	if o.out == "-" || strings.EqualFold(filepath.Ext(o.out), ".csv") {
		return o.exportOne(store, sets, stdout)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for i := range sets {
		d, err := store.Set(sets[i].ID)
		if err != nil {
			return err
		}
		path := filepath.Join(o.out, exportName(sets, i))
		if err := writeNew(path, func(w io.Writer) error { return training.WriteCSV(w, d) }); err != nil {
			return err
		}
		fmt.Fprintln(stdout, path)
	}
	return nil
}

// exportOne writes all sets together. They must be of one device, which the
// file does not name.
func (o *exportOptions) exportOne(store *training.Store, sets []training.Summary, stdout io.Writer) error {
	parts := make([]*training.Dataset, len(sets))
	for i, set := range sets {
		if set.Device != sets[0].Device {
			return fmt.Errorf("groups of %s and of %s do not go into one file; name one with --device", orUnknown(sets[0].Device), orUnknown(set.Device))
		}
		var err error
		if parts[i], err = store.Set(set.ID); err != nil {
			return err
		}
	}
	d, err := training.Merge(parts...)
	if err != nil {
		return err
	}
	if o.out == "-" {
		return training.WriteCSV(stdout, d)
	}
	return writeNew(o.out, func(w io.Writer) error { return training.WriteCSV(w, d) })
}

// choose returns the sets that are wanted.
func (o *exportOptions) choose(store *training.Store) ([]training.Summary, error) {
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	sets := slices.DeleteFunc(all, func(s training.Summary) bool {
		unwanted := func(m training.Model) bool { return !slices.Contains(o.models, m.Name) }
		return o.device != "" && s.Device != o.device || len(o.models) > 0 && slices.ContainsFunc(s.Models, unwanted)
	})
	if len(sets) == 0 {
		return nil, errors.New("nothing is measured that is asked for; see overlapd dataset show for what is")
	}
	return sets, nil
}

// exportName returns the name of the file of a set: its models, and its ID if
// another set has the same ones.
func exportName(sets []training.Summary, i int) string {
	base := fileName(&sets[i])
	for j := range sets {
		if j != i && strings.EqualFold(fileName(&sets[j]), base) {
			return base + "-" + string(sets[i].ID) + ".csv"
		}
	}
	return base + ".csv"
}

// fileName joins the names of the models, made fit for a file system.
func fileName(s *training.Summary) string {
	const longest = 200
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) {
			return '-'
		}
		return r
	}, strings.ReplaceAll(s.Name(), " + ", "_"))
	if name = strings.TrimLeft(name, "."); name == "" || len(name) > longest {
		return string(s.ID)
	}
	return name
}

// writeNew writes a file that is not there yet, whole or not at all.
func writeNew(path string, write func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already; remove it or choose another --out", path)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
