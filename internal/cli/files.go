package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

// LocalConfig is the configuration of commands that are told of none, in their working folder.
const LocalConfig = "overlapd.toml"

// Local returns [LocalConfig], or nothing where there is no such file. It says which file is
// taken, since nobody has named it.
func Local(cmd *cobra.Command) string {
	if info, err := os.Stat(LocalConfig); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "overlapd: using %s in this folder\n", LocalConfig)
	return LocalConfig
}

// ConfigFlag adds the flag --config, without which a command takes [LocalConfig], unless one of the
// flags is given that say what to use instead.
func ConfigFlag(cmd *cobra.Command, path *string, what string, instead ...string) {
	cmd.Flags().StringVarP(path, "config", "c", "", what+" (default "+LocalConfig+" in this folder, if there is one)")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		if *path == "" && !slices.ContainsFunc(instead, cmd.Flags().Changed) {
			*path = Local(cmd)
		}
	}
}

// WriteNew writes a file that people edit afterwards, so it never replaces one.
func WriteNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if os.IsExist(err) {
		return fmt.Errorf("%s already exists: remove it, or choose another file with --out", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
