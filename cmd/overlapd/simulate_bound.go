package main

import (
	"fmt"
	"io"

	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/sim/bound"
)

// boundOf returns what no schedule of a scenario's queries does better than, or
// nil if that is not asked for.
func (o *simulateOptions) boundOf(sc sim.Scenario) (*bound.Bound, error) {
	if !o.bound {
		return nil, nil
	}
	b, err := bound.Of(sc)
	if err != nil {
		return nil, fmt.Errorf("--bound: %w", err)
	}
	return b, nil
}

// writeBound prints a bound below the results.
func writeBound(w io.Writer, b *bound.Bound) error {
	if b == nil {
		return nil
	}
	how := "as a relaxation"
	if b.Exact {
		how = "all sets of queries tried"
	}
	_, err := fmt.Fprintf(w, "offline bound: no schedule has fewer violations than %.2f %%, even one that knows all queries beforehand (%s; of %d groups the best gains %.2f times)\n",
		100*b.Violations, how, b.Tried, b.Gain)
	return err
}
