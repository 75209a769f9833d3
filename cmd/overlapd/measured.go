package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/training"
)

// measuredOptions says which measured groups a command works on: those of CSV
// files, or those that the state file holds of one device.
type measuredOptions struct {
	data   []string
	format string
	device string
	state  stateOptions
}

// fileFlags are for commands that read CSV files only.
func (o *measuredOptions) fileFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.data, "data", nil, "CSV files, or folders of them, of measured groups")
	f.StringVar(&o.format, "format", "abacus", "form of the CSV files; abacus is the only one")
	f.StringVar(&o.device, "device", "", "what the groups of CSV files were measured on, in words")
}

// flags are for commands that read CSV files or the state file.
func (o *measuredOptions) flags(cmd *cobra.Command) {
	o.state.flags(cmd)
	o.fileFlags(cmd)
	cmd.Flags().Lookup("data").Usage += ", instead of the state file"
	cmd.Flags().Lookup("device").Usage += "; or only those of the state file that were measured on this"
	cmd.MarkFlagsMutuallyExclusive("data", "state")
	cmd.MarkFlagsMutuallyExclusive("data", "config")
}

// check refuses what could not be read before anything takes time.
func (o *measuredOptions) check() error {
	if o.format != "abacus" {
		return fmt.Errorf("--format %s is unknown; abacus is the only one", o.format)
	}
	return nil
}

// read reads the files, or what the state file holds of one device. In the
// second case it also hands the open state file over, if anybody wants it.
func (o *measuredOptions) read(more func(*training.Store, *training.Dataset) error) (d *training.Dataset, err error) {
	if len(o.data) > 0 {
		return o.readFiles()
	}
	file, err := o.state.open(true)
	if err != nil {
		return nil, err
	}
	// It is closed before the caller goes on, so that a daemon may start.
	defer func() { err = errors.Join(err, file.Close()) }()
	store := file.Datasets()
	sets, err := (&exportOptions{device: o.device}).choose(store)
	if err != nil {
		return nil, err
	}
	device := sets[0].Device
	for _, s := range sets {
		if s.Device != device {
			return nil, fmt.Errorf("there are groups of %s and of %s; name one with --device", orUnknown(device), orUnknown(s.Device))
		}
	}
	if d, err = store.Dataset(device, nil); err == nil && more != nil {
		err = more(store, d)
	}
	return d, err
}

// readFiles reads the CSV files.
func (o *measuredOptions) readFiles() (*training.Dataset, error) {
	if len(o.data) == 0 {
		return nil, errors.New("no measured groups: name CSV files with --data")
	}
	d, err := readDatasets(o.data)
	if err == nil {
		d.Device = o.device
	}
	return d, err
}

// checkOut refuses a file that could not be written, before what goes into it
// is made. The flag is what names it; without a path there is none.
func checkOut(flag, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("--%s %s is a folder; name a file in it", flag, path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("--%s %s: there is no folder %s; make it first", flag, path, filepath.Dir(path))
	}
	return nil
}
