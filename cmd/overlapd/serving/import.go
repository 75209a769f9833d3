package serving

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/config/triton"
	"github.com/overlapd/overlapd/internal/cli"
)

// importCommand writes a file to edit. What serve --model-repository reads has the same content, but
// follows the repository at each start.
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
			// A file that serve would refuse is not written.
			if err := c.Validate(); err != nil {
				return err
			}
			text := importedFile(c, args[0], notes)
			if to == "-" {
				_, err := cmd.OutOrStdout().Write(text)
				return err
			}
			if err := cli.WriteNew(to, text); err != nil {
				return err
			}
			// They are in the file, too, but a user who imports a hundred models does not look there first.
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

// importedFile returns a configuration file with the notes at its head, where a user who edits the file
// finds what Triton's settings would have done.
func importedFile(c config.Config, repository string, notes []string) []byte {
	// Where the state is follows from the environment of the daemon, which may be another machine's.
	c.StateDir = ""
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by overlapd import from the model repository %q.\n", repository)
	for _, note := range notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	b.Write(c.BriefTOML())
	return b.Bytes()
}
