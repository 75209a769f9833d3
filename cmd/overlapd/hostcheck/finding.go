package hostcheck

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/overlapd/overlapd/cuda"
)

// ErrHost is returned by Report.Err when the host cannot do what is wanted.
var ErrHost = errors.New("this host cannot run the configuration")

// Level is how much a finding matters.
type Level string

// The levels. Only a fault keeps services from running.
const (
	OK      Level = "ok"
	Note    Level = "note"
	Warning Level = "warning"
	Fault   Level = "fault"
)

// Finding is one thing that was found.
type Finding struct {
	Rule   string `json:"rule"`
	Level  Level  `json:"level"`
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitempty"` // what to do, if it is not in Says
}

// String returns the finding as one sentence.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.Says
	}
	return f.Says + "; " + f.Remedy
}

// Report is what was found.
type Report struct {
	Device   string      `json:"device,omitempty"` // that services would run on, in words
	UUID     string      `json:"uuid,omitempty"`
	Facts    *cuda.Facts `json:"facts,omitempty"`  // absent where there is no driver
	Layout   string      `json:"layout,omitempty"` // of MIG, as it would be
	Findings []Finding   `json:"findings"`
}

// add notes what a rule says. Words are pairs of a name in braces and what stands
// for it.
func (r *Report) add(id string, words ...string) {
	for _, rule := range rules {
		if rule.id == id {
			for i := 0; i < len(words); i += 2 {
				words[i] = "{" + words[i] + "}"
			}
			fill := strings.NewReplacer(words...)
			r.Findings = append(r.Findings, Finding{rule.id, rule.level, fill.Replace(rule.says), fill.Replace(rule.remedy)})
			return
		}
	}
	panic("hostcheck: no rule " + id)
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

// WriteText writes a line for each finding, each after a "# ". What is well is
// left short.
func (r *Report) WriteText(w io.Writer) {
	for _, f := range r.Findings {
		text := strings.ReplaceAll(f.String(), "\n", "\n#   ")
		if f.Level == OK || f.Level == Note {
			fmt.Fprintf(w, "# %s\n", text)
			continue
		}
		fmt.Fprintf(w, "# %s: %s\n", f.Level, text)
	}
	if r.Layout != "" {
		fmt.Fprintf(w, "# %s\n", strings.ReplaceAll(strings.TrimRight(r.Layout, "\n"), "\n", "\n# "))
	}
}
