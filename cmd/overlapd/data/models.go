package data

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/models/zoo"
)

// modelsListCommand lists what needs no download, for a first try.
func modelsListCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the zoo models",
		Long: `List prints the zoo: models that overlapd builds itself, with weights from a seed. They
have the operators and the cost of the real models, but are not trained, so use them
to try overlapd, not for answers. A service uses one with model = "zoo:NAME".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The size is calculated, as no file exists before it is built.
			type row struct {
				zoo.Entry
				Bytes int64 `json:"bytes"`
			}
			var rows []row
			t := report.NewTable("NAME", "PRECISION", "PARAMETERS", "FILE", "DESCRIPTION")
			for _, name := range zoo.Names() {
				e, _ := zoo.Lookup(name)
				rows = append(rows, row{e, e.Size()})
				t.Row(e.Name, e.Precision, metric(e.Params, ""), metric(e.Size(), "B"), e.Summary)
			}
			return out.Print(cmd.OutOrStdout(), map[string]any{"models": rows}, t.WriteText)
		},
	}
	out.Flags(cmd.Flags())
	return cmd
}

// modelsBuildCommand is for those who want the files: the daemon builds what it serves by itself.
func modelsBuildCommand() *cobra.Command {
	var dir string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "build NAME...",
		Short: "Write zoo models as ONNX files, with weights from a seed",
		Example: `  overlapd models build resnet50 bert-fp16 --out models
  overlapd models build vgg19 --seed 7`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			// Building takes minutes for the largest, so a misspelt name is found before.
			for _, name := range names {
				if _, ok := zoo.Lookup(name); !ok {
					return fmt.Errorf("the zoo has no model %q; overlapd models list shows all", name)
				}
			}
			for _, name := range names {
				path, err := cli.BuildZoo(name, dir, seed)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), path) // as soon as it is there
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&dir, "out", "o", ".", "folder for the files, created if needed")
	// The daemon's own files have this seed, so that both have the same hash and share measurements.
	cmd.Flags().Uint64Var(&seed, "seed", cli.ZooSeed, "seed of the weights")
	return cmd
}

// metric writes a number with at most four digits and the prefix of its magnitude.
func metric(n int64, unit string) string {
	// What would be rounded to 1000 gets the next prefix instead.
	v, prefix := float64(n), ""
	for _, p := range []string{"k", "M", "G", "T"} {
		if v < 999.5 {
			break
		}
		v, prefix = v/1000, p
	}
	// Three digits are enough to compare models, and keep the columns narrow.
	digits := 0
	if v < 99.95 && prefix != "" {
		digits = 1
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s%s", digits, v, prefix, unit))
}
