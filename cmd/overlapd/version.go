package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/ort"
)

// built is the JSON of version. Fault is why no ONNX Runtime was found, which is no error: demo and the
// planners need none.
type built struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Go         string `json:"go"`
	ORTPath    string `json:"ort_path,omitempty"`
	ORTVersion string `json:"ort_version,omitempty"`
	Fault      string `json:"fault,omitempty"`
}

// versionCommand says more than --version does: ONNX Runtime is loaded from one of several places, and
// which one it was is the first question about a worker that does not start.
func versionCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the versions of overlapd and of ONNX Runtime",
		Example: "  overlapd version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The commit tells what the version does not, between two releases.
			b := built{Version: cli.Version, Commit: cli.Commit(), Go: runtime.Version()}
			if lib, err := ort.Load(); err != nil {
				b.Fault = err.Error()
			} else {
				b.ORTPath, b.ORTVersion = lib.Path(), lib.Version()
			}
			return out.Print(cmd.OutOrStdout(), b, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "overlapd %s (%s), %s\n%s\n", b.Version, b.Commit, b.Go,
					cmp.Or(b.Fault, "ONNX Runtime "+b.ORTVersion+", "+b.ORTPath))
				return err
			})
		},
	}
	out.Flags(cmd.Flags())
	return cmd
}
