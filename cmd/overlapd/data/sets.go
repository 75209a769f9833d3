package data

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/training"
)

// chooseSets returns the sets of a device and of models, of any where they are empty.
func chooseSets(store *training.Store, device string, models []string) ([]training.Summary, error) {
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	sets := slices.DeleteFunc(all, func(s training.Summary) bool {
		unwanted := func(m training.Model) bool { return !slices.Contains(models, m.Name) }
		return device != "" && s.Device != device || len(models) > 0 && slices.ContainsFunc(s.Models, unwanted)
	})
	// Nothing is an error for all who ask: there is neither a file to write nor a row to fit to.
	if len(sets) == 0 {
		return nil, errors.New("no measured group matches; overlapd dataset show lists what there is")
	}
	return sets, nil
}

// Groups are the flags that choose measured groups: those of CSV files, or
// those that the state file holds of one device.
type Groups struct {
	cli.Measured
	state stateOptions
}

// ConfigFile returns the configuration that names the state file, "" if none does.
func (o *Groups) ConfigFile() string { return o.state.config }

// AddFlags adds the flags, for commands that read CSV files or the state file.
func (o *Groups) AddFlags(cmd *cobra.Command) {
	o.state.flags(cmd)
	o.FileFlags(cmd)
	cmd.Flags().Lookup("data").Usage += ", instead of the state file"
	cmd.Flags().Lookup("device").Usage += "; or use only the groups of the state file from this device"
	// Both say where groups come from. --config may say more than that, and is left to the command.
	cmd.MarkFlagsMutuallyExclusive("data", "state")
}

// Read reads the files, or what the state file holds of one device together with
// the isolated latencies of its operators. The state file is closed before it returns, so
// that a daemon may start.
func (o *Groups) Read() (d *training.Dataset, operators map[string][]training.OperatorTimes, err error) {
	// Files have no times of single operators.
	if d, err = o.ReadFiles(); d != nil || err != nil {
		return d, nil, err
	}
	err = o.state.use(reading, func(store *training.Store) error {
		sets, err := chooseSets(store, o.Device, nil)
		if err != nil {
			return err
		}
		// What takes how long on two devices is two functions, and no model can be fitted to both.
		device := sets[0].Device
		for _, s := range sets {
			if s.Device != device {
				return fmt.Errorf("there are groups of %s and of %s; name one with --device", cmp.Or(device, "unknown"), cmp.Or(s.Device, "unknown"))
			}
		}
		if d, err = store.Dataset(device, nil); err == nil {
			operators, err = store.Operators(d.Device, d.Models)
		}
		return err
	})
	return d, operators, err
}
