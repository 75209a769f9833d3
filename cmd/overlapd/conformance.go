package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/cmd/overlapd/conformance"
)

// errNotConforming is returned when a model gives other outputs when it is cut.
var errNotConforming = errors.New("cut execution does not give what ONNX Runtime gives")

// conformanceCommand is for those who change overlapd: make conformance runs it.
func conformanceCommand() *cobra.Command {
	o := conformance.Options{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:    "conformance --data DIR",
		Short:  "Compare every model below a folder, cut at every node, with ONNX Runtime",
		Hidden: true,
		Long: `Every model.onnx below the folders is run whole and cut at every node, on the
inputs that lie beside it or on made-up ones. A model that ONNX Runtime itself
does not run correctly is skipped; any other must give the same outputs.`,
		Example: "  overlapd conformance --data node --data simple --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.Data) == 0 {
				return errors.New("which models? Give --data DIR; make conformance takes those of Debian's libonnx-testdata")
			}
			if _, err := openORT(); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Child = []string{self, "conformance", "child"}
			ctx, stop := interruptible(cmd)
			defer stop()
			report, err := conformance.Run(ctx, o)
			if err != nil {
				return err
			}
			if err := printConformance(cmd, report, asJSON); err != nil {
				return err
			}
			if !report.OK() {
				return errNotConforming
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.Data, "data", nil, "`folder` of models, may be given several times")
	f.DurationVar(&o.Timeout, "timeout", conformance.DefaultTimeout, "time that one model may take")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.AddCommand(conformanceChildCommand())
	return cmd
}

func printConformance(cmd *cobra.Command, r *conformance.Report, asJSON bool) error {
	if !asJSON {
		r.Print(cmd.OutOrStdout())
		return nil
	}
	return printJSON(cmd.OutOrStdout(), struct {
		*conformance.Report
		Commit string `json:"commit"`
		Device string `json:"device"`
	}{r, buildCommit(), cpuName()})
}

// conformanceChildCommand compares in a process that may crash.
func conformanceChildCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "child",
		Short:  "Compare the models named on standard input (started by conformance)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := conformance.Child(cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("comparing: %w", err)
			}
			return nil
		},
	}
}
