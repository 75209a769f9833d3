package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// Measured are the flags of commands that work on measured groups: the CSV files with them, and
// how to fit a network to them.
type Measured struct {
	Output
	Data           []string
	Format, Device string
	Solo, Out      string
	Fit            fit.Options
}

// FileFlags adds the flags that name files.
func (o *Measured) FileFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.Data, "data", nil, "CSV files of measured groups, or folders of them")
	f.StringVar(&o.Format, "format", "abacus", "format of the CSV files; abacus is the only one")
	f.StringVar(&o.Device, "device", "", "device on which the groups of the CSV files were measured, in words")
}

// ReadFiles reads the files. It returns nil if none is named.
func (o *Measured) ReadFiles() (*training.Dataset, error) {
	if o.Format != "abacus" {
		return nil, fmt.Errorf("--format %s is unknown; abacus is the only one for measured groups", o.Format)
	}
	if len(o.Data) == 0 {
		return nil, nil
	}
	d, err := training.ReadPath(o.Data...)
	if err != nil {
		return nil, err
	}
	d.Device = o.Device
	return d, nil
}

// FitFlags adds the flags of fitting. The texts describe --out, --epochs and --split, which differ by command.
func (o *Measured) FitFlags(f *pflag.FlagSet, out, epochs, splits string) {
	f.StringVarP(&o.Out, "out", "o", "", out)
	f.StringVar(&o.Solo, "solo", "", "CSV file of isolated latencies to calibrate all groups to: model, batch, seq_len, min_ms")
	f.Uint64Var(&o.Fit.Seed, "seed", o.Fit.Seed, "seed of the split, the weights and the order of the rows")
	f.IntSliceVar(&o.Fit.Hidden, "hidden", o.Fit.Hidden, "units of the hidden layers")
	f.IntVar(&o.Fit.Epochs, "epochs", 0, "passes over the rows, 0 for the number "+epochs)
	f.StringVar(&o.Fit.Split, "split", o.Fit.Split, "rows to test with: "+splits)
	f.Float64Var(&o.Fit.TestFraction, "test", o.Fit.TestFraction, "fraction of the rows, or of the configurations, to test with")
	o.Flags(f)
}

// Bar shows the epochs of the present stage of fitting until end is called.
func (o *Measured) Bar() (end func()) {
	show, end := Bar()
	o.Fit.Progress = func(p fit.Progress) {
		show(fmt.Sprintf("%s: loss %.4f, %v left", p.Stage, p.Loss, p.Left.Round(time.Second)), float64(p.Epoch)/float64(max(p.Epochs, 1)))
	}
	return end
}

// CheckOut refuses a path that is no file's before its content takes time.
func CheckOut(flag, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("--%s %s is a folder; name a file in it", flag, path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("--%s %s: folder %s does not exist; create it first", flag, path, filepath.Dir(path))
	}
	return nil
}
