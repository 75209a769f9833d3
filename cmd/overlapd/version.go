package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/overlapd/overlapd/ort"
)

// built is the JSON of version. ORT is the ONNX Runtime that was found, Fault why
// none was.
type built struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	ORTPath    string `json:"ort_path,omitempty"`
	ORTVersion string `json:"ort_version,omitempty"`
	ORTPinned  bool   `json:"ort_pinned"`
	Fault      string `json:"fault,omitempty"`
}

func versionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of overlapd and which ONNX Runtime it finds",
		Example: "  overlapd version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := built{Version: version, Commit: buildCommit(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			lib, err := ort.Load()
			if err != nil {
				b.Fault = err.Error()
			} else {
				b.ORTPath, b.ORTVersion, b.ORTPinned = lib.Path(), lib.Version(), lib.Pinned()
			}
			return out.print(cmd.OutOrStdout(), b, b.writeText)
		},
	}
	out.flag(cmd.Flags())
	return cmd
}

func (b *built) writeText(w io.Writer) error {
	runs := fmt.Sprintf("ONNX Runtime %s, %s", b.ORTVersion, b.ORTPath)
	switch {
	case b.Fault != "":
		runs = b.Fault
	case !b.ORTPinned:
		runs += "; overlapd is tested with " + ort.PinnedVersion
	}
	_, err := fmt.Fprintf(w, "overlapd %s (%s), %s %s\n%s\n", b.Version, b.Commit, b.Go, b.Platform, runs)
	return err
}
