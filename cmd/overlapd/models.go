package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/models/zoo"
)

func modelsCommand() *cobra.Command {
	return group("models", "List and build the models of the zoo, and see how a model is cut",
		modelsListCommand(), modelsBuildCommand(), modelsInspectCommand())
}

// zooRow is a model of the zoo in the JSON of models list.
type zooRow struct {
	Name      string `json:"name"`
	Precision string `json:"precision"`
	Params    int64  `json:"params"`
	Bytes     int64  `json:"bytes"`
	Summary   string `json:"summary"`
}

func modelsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models of the zoo",
		Long: `The zoo holds models that overlapd builds itself, with weights from a seed: they
have the operators and the cost of the real ones, and know nothing. A service
uses one with model = "zoo:NAME".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows []zooRow
			for _, name := range zoo.Names() {
				e, _ := zoo.Lookup(name)
				rows = append(rows, zooRow{e.Name, e.Precision, e.Params, e.Size(), e.Summary})
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"models": rows})
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "NAME\tPRECISION\tPARAMETERS\tFILE\tWHAT IT IS")
			for _, r := range rows {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Name, r.Precision, metric(r.Params, ""), metric(r.Bytes, "B"), r.Summary)
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func modelsBuildCommand() *cobra.Command {
	var dir string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "build NAME...",
		Short: "Write models of the zoo as ONNX files, with weights from a seed",
		Example: `  overlapd models build resnet50 bert-fp16 --out models
  overlapd models build vgg19 --seed 7`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			for _, name := range names {
				if _, ok := zoo.Lookup(name); !ok {
					return fmt.Errorf("the zoo has no model %q; see overlapd models list", name)
				}
			}
			for _, name := range names {
				path, err := buildZoo(name, dir, seed)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&dir, "out", "o", ".", "folder to write to, made if it is not there")
	cmd.Flags().Uint64Var(&seed, "seed", zooSeed, "seed of the weights")
	return cmd
}

func modelsInspectCommand() *cobra.Command {
	var asJSON, asIs bool
	o := inspectOptions{}
	cmd := &cobra.Command{
		Use:   "inspect NAME|FILE",
		Short: "Show a model's inputs, outputs, operators, cuts and live bytes",
		Long: `Inspect optimizes a model for this machine, cuts it and runs it once on zeros.
It shows every operator with the bytes that are alive after it, which is what a
query keeps when it is paused there. With --as-is the file is shown as it
stands, without ONNX Runtime: its nodes, and the values alive at each cut.`,
		Example: `  overlapd models inspect resnet50
  overlapd models inspect model.onnx --cut 16 --json
  overlapd models inspect model.onnx --as-is`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := modelPath(args[0])
			if err != nil {
				return err
			}
			inspect := o.optimized
			if asIs {
				inspect = o.asIs
			}
			found, err := inspect(path)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), found)
			}
			return found.writeText(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.BoolVar(&asIs, "as-is", false, "show the file as it stands, without ONNX Runtime")
	f.IntVar(&o.target, "cut", 0, "operators wanted, 0 for one at every node")
	f.IntVar(&o.batch, "batch", 1, "batch size that live bytes and times are given for")
	f.IntVar(&o.threads, "threads", 1, "intra-op threads that times are given for")
	return cmd
}

// printJSON writes v as the one JSON object that a command prints.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// metric writes a number with at most four digits and the prefix of its
// magnitude before the unit.
func metric(n int64, unit string) string {
	v, prefix := float64(n), ""
	for _, p := range []string{"k", "M", "G", "T"} {
		if v < 999.5 {
			break
		}
		v, prefix = v/1000, p
	}
	digits := 0
	if v < 99.95 && prefix != "" {
		digits = 1
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s%s", digits, v, prefix, unit))
}

// fileSize returns the size of a file, 0 if it cannot be had.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
