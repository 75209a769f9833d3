package reproduce

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of options.
const (
	MaxSeeds   = 1000
	MaxQueries = 1_000_000 // of a run
	MaxEpochs  = 10_000
)

// Options say what is reproduced from what.
type Options struct {
	Data     string   // folder with abacus-a100, or that folder itself
	Out      string   // folder for results and for what was fitted
	Seed     uint64   // of the split, of fitting, and the first of the runs
	Seeds    int      // runs of each deployment
	Queries  int      // of a run
	Epochs   int      // of fitting, 0 for what the recipes say
	Figures  []string // FigureNames, none for all
	Policies []string // VariantNames, none for all
	Commit   string   // of the build

	// Progress is called, by one goroutine at a time, as work is done.
	Progress func(Progress)
}

// DefaultOptions are those of the published tables.
func DefaultOptions() Options { return Options{Seed: 1, Seeds: 10, Queries: authorsQueries} }

// The figures, in the order in which they are shown.
var figureNames = []string{"10", "14", "15", "16", "17", "18", "19", "20", "21", "22", "23", "highest-load", "credibility"}

// FigureNames lists what Options.Figures may name.
func FigureNames() []string { return slices.Clone(figureNames) }

// Validate returns an error that wraps [ErrOptions] and names every fault.
func (o *Options) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(o.Data == "", "no folder with data; give --data DIR")
	fault(o.Out == "", "no folder for results; give --out DIR")
	fault(o.Seeds < 1 || o.Seeds > MaxSeeds, "%d seeds, not 1 to %d", o.Seeds, MaxSeeds)
	fault(o.Queries < 1 || o.Queries > MaxQueries, "%d queries a run, not 1 to %d", o.Queries, MaxQueries)
	fault(o.Epochs < 0 || o.Epochs > MaxEpochs, "%d epochs, not 0 to %d", o.Epochs, MaxEpochs)
	for _, f := range o.Figures {
		fault(!slices.Contains(figureNames, f), "there is no figure %q; there are %s", f, strings.Join(figureNames, ", "))
	}
	if _, err := chosen(o.Policies); err != nil {
		faults = append(faults, err)
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrOptions, errors.Join(faults...))
}

func (o *Options) wants(figures ...string) bool {
	return len(o.Figures) == 0 || slices.ContainsFunc(figures, func(f string) bool { return slices.Contains(o.Figures, f) })
}
