package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/config/triton"
)

func importCommand() *cobra.Command {
	var to string
	var target time.Duration
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Write a configuration for a Triton model repository",
		Long: `Import reads a Triton model repository, a folder with MODEL/config.pbtxt and
MODEL/1/model.onnx, and writes a configuration that serves its models in place. Use it
to move from Triton, or to edit the result; serve --model-repository needs no file.

Settings without an effect in overlapd are listed at the top of the file. Models that
are invalid or not ONNX are left out and named. The latency target of a model is its
default_timeout_microseconds, or else --target.`,
		Example: `  overlapd import /srv/models
  overlapd import /srv/models --target 50ms --out -
  overlapd serve --model-repository /srv/models    serve it without a file`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, notes, err := triton.Read(args[0], target)
			if err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return err
			}
			text := importedFile(c, args[0], notes)
			if to == "-" {
				_, err := cmd.OutOrStdout().Write(text)
				return err
			}
			if err := writeNew(to, text); err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "overlapd:", note)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s serves %s; next: overlapd check %[1]s\n", to, strings.Join(c.Names(), ", "))
			return nil
		},
	}
	cmd.Flags().StringVarP(&to, "out", "o", "overlapd.toml", "file to write, which must not exist; - for standard output")
	targetFlag(cmd, &target)
	return cmd
}

// targetFlag adds the option for the target of models that have none.
func targetFlag(cmd *cobra.Command, target *time.Duration) {
	cmd.Flags().DurationVar(target, "target", config.DefaultService().Target, "latency target of models of a model repository without a default timeout")
}

// importedFile returns a configuration file with the notes at its head.
func importedFile(c config.Config, repository string, notes []string) []byte {
	c.StateDir = "" // where it is follows from the environment of the daemon
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by overlapd import from the model repository %q.\n", repository)
	for _, note := range notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	b.Write(c.BriefTOML())
	return b.Bytes()
}

func writeNew(path string, text []byte) error {
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
