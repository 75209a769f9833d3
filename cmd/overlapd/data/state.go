package data

import (
	"cmp"
	"errors"

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

// How a state file is opened. Only to read it, a daemon may have it. To change one that is not there
// is a mistake in the name of the folder, but not to import into one.
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
