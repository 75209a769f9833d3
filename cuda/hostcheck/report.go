package hostcheck

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/cuda"
)

// ErrHost is what [Report.Err] returns where the host cannot do what is wanted.
var ErrHost = errors.New("this host cannot run the configuration")

// The levels of a finding. Only a fault keeps services from running.
const (
	OK      = "ok"
	Note    = "note"
	Warning = "warning"
	Fault   = "fault"
)

// Finding is a rule that holds on the host, with its sentences filled in. There is no remedy
// where what it says is enough.
type Finding struct {
	Rule   string `json:"rule"`
	Level  string `json:"level"`
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitempty"`
}

// String returns the finding as one sentence.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.Says
	}
	return f.Says + "; " + f.Remedy
}

// Report is about the GPU that services would run on. Facts are absent where there is no
// driver. Layout draws the MIG instances as the daemon would make them.
type Report struct {
	Device   string      `json:"device,omitempty"`
	UUID     string      `json:"uuid,omitempty"`
	Facts    *cuda.Facts `json:"facts,omitempty"`
	Layout   string      `json:"layout,omitempty"`
	Findings []Finding   `json:"findings"`
}

// found reports whether one of the rules held so far.
func (r *Report) found(rules ...string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return slices.Contains(rules, f.Rule) })
}

// Err returns all faults as one error, nil if there are none.
func (r *Report) Err() error {
	var faults []error
	for _, f := range r.Findings {
		if f.Level == Fault {
			faults = append(faults, errors.New(f.String()))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrHost, errors.Join(faults...))
}

// WriteText writes each finding as a comment of a configuration file, since check prints the
// configuration beside it and both may end up in one file.
func (r *Report) WriteText(w io.Writer) {
	for _, f := range r.Findings {
		text := strings.ReplaceAll(f.String(), "\n", "\n#   ")
		if f.Level == Warning || f.Level == Fault {
			text = f.Level + ": " + text
		}
		fmt.Fprintf(w, "# %s\n", text)
	}
	if r.Layout != "" {
		fmt.Fprintf(w, "# %s\n", strings.ReplaceAll(strings.TrimRight(r.Layout, "\n"), "\n", "\n# "))
	}
}
