package data

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/serving"
	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/training"
)

// stateOptions are the flags that name the state file of a command: its folder, or a configuration that
// has one. Without either it is the one that a daemon without a configuration would have.
type stateOptions struct {
	dir    string
	config string
}

// flags adds the flags. A command that has CSV files to read looks for no configuration in its folder.
func (o *stateOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dir, "state", "", "state folder, instead of the configuration's or the default")
	cli.ConfigFlag(cmd, &o.config, "configuration file that names the state folder", "state", "data")
}

// opener opens the state file of a folder, which a process of its own has checked by a command line.
type opener func(dir string, check []string) (*daemon.State, error)

// How a state file is opened. Only to read it, a daemon may have it. Where there is no file, a change is
// refused, since the folder must be wrong; an import makes one.
var (
	reading  opener = daemon.ReadState
	changing opener = func(dir string, check []string) (*daemon.State, error) { return daemon.OpenState(dir, true, check) }
	making   opener = func(dir string, check []string) (*daemon.State, error) { return daemon.OpenState(dir, false, check) }
)

// ReadState calls do with the state file of a folder, while a daemon may have it open.
func ReadState(dir string, do func(*daemon.State) error) error {
	return (&stateOptions{dir: dir}).open(reading, do)
}

// use calls do with the measurements of the state file.
func (o *stateOptions) use(how opener, do func(*training.Store) error) error {
	return o.open(how, func(s *daemon.State) error { return do(s.Datasets()) })
}

// open calls do with the state file, and closes it: until then no daemon can start on it.
func (o *stateOptions) open(how opener, do func(*daemon.State) error) error {
	// A folder that is named comes first: it may be a copy of the one that the configuration names.
	dir := cmp.Or(o.dir, config.Default().StateDir)
	if o.dir == "" && o.config != "" {
		c, err := config.Load(o.config)
		if err != nil {
			return err
		}
		dir = c.StateDir
	}
	file, err := how(dir, serving.CheckState())
	if err != nil {
		return err
	}
	return errors.Join(do(file), file.Close())
}

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
	// No match is an error for all callers: there is neither a file to write nor a row to fit to.
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
		// One predictor cannot be fitted to the latencies of two devices, nor can advice be for both.
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
