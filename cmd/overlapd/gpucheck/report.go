package gpucheck

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Format is the first field of every report.
const Format = "overlapd-gpu-check/1"

// Names of the files of a report, in the folder of the results.
const (
	JSONName     = "gpu-check.json"
	PageName     = "gpu-check.html"
	MarkdownName = "gpu-check.md"
)

// Report is what was found. What a step did not get to is absent.
type Report struct {
	Format    string    `json:"format"`
	Rehearsal bool      `json:"rehearsal"` // on the CPU: nothing here is about a GPU
	Device    string    `json:"device"`    // in words
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"` // of the steps
	// PreparingSeconds were spent before the first step: on unpacking, and on models
	// of the zoo that had to be built.
	PreparingSeconds float64 `json:"preparing_seconds"`

	Version string `json:"version"`
	Commit  string `json:"commit"`
	Seed    uint64 `json:"seed"`

	Steps    []StepResult   `json:"steps"`
	Verdicts []Verdict      `json:"verdicts"`
	Facts    *Facts         `json:"facts,omitempty"`
	Outputs  []OutputRow    `json:"outputs,omitempty"`
	Cuts     []CutRow       `json:"cuts,omitempty"`
	Choices  []Choice       `json:"choices,omitempty"`
	Sessions []SessionRow   `json:"sessions,omitempty"`
	Variants []VariantRow   `json:"variants,omitempty"`
	Looks    []Look         `json:"looks,omitempty"` // at MPS; those of measurements are in Assumed
	Assumed  []Look         `json:"assumed,omitempty"`
	Pairs    []PairRow      `json:"pairs,omitempty"`
	Repeat   *Repeat        `json:"repeat,omitempty"`
	Profile  *Profile       `json:"profile,omitempty"`
	Load     *LoadSetting   `json:"load,omitempty"`
	Turns    []Turn         `json:"turns,omitempty"`
	Policies []PolicyResult `json:"policies,omitempty"`
}

// The ends of a step.
const (
	Done      = "done"
	Failed    = "failed"
	OutOfTime = "out of time" // what it measured until then is in the report
	Left      = "left out"    // the whole check was interrupted, or has no time left
)

// StepResult is how a step went.
type StepResult struct {
	Name    string  `json:"name"`
	Title   string  `json:"title"`
	Status  string  `json:"status"`
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
	Budget  float64 `json:"budget_seconds"`
}

// newReport returns the report of a check that begins.
func newReport(o *Options, now time.Time) *Report {
	return &Report{
		Format: Format, Rehearsal: o.rehearsal(), Device: o.Machine, Started: now.UTC().Truncate(time.Second),
		PreparingSeconds: o.Spent.Seconds(), Version: o.Version, Commit: o.Commit, Seed: o.Seed,
	}
}

// save writes the report in all its forms. A file is there whole or as it was.
func (r *Report) save(dir string) error {
	r.Assumed = r.derived()
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	html, err := r.page()
	if err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	for name, content := range map[string][]byte{JSONName: append(data, '\n'), PageName: html, MarkdownName: r.markdown()} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".incoming", content, 0o644); err != nil {
			return err
		}
		if err := os.Rename(path+".incoming", path); err != nil {
			return err
		}
	}
	return nil
}
